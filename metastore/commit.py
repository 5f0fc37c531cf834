"""A commit is a value: preconditions, writes and their events, applied all or not at all.

This is the *minitransaction* of Sinfonia (SOSP 2007), or ``Txn(compare, then)`` in etcd.
A backend applies a commit in one attempt and answers with an outcome:

* :class:`Committed`: everything was applied, atomically; the results follow the writes' order;
* :class:`Conflicted`: nothing was applied, because a precondition did not hold; it says which;
* :class:`Unknown`: the acknowledgement was lost; only the operation id can tell.

Preconditions that later protocols add (marks, intents, lease tokens) become further fields
here; a backend checks them in the same statement or transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

__all__ = [
    "DROPPED",
    "LIVE",
    "PURGING",
    "ROOT_ID",
    "Absent",
    "Cause",
    "Commit",
    "Committed",
    "Conflicted",
    "Delete",
    "Event",
    "Expect",
    "Guard",
    "Insert",
    "Listing",
    "Outcome",
    "Place",
    "Put",
    "Result",
    "Unknown",
    "Update",
    "Write",
]

ROOT_ID = 0
"""The id of the root's guard row, the parent of all metalakes."""

LIVE, DROPPED, PURGING = 0, 1, 2
"""The states of a guard row. What is purging can not be restored and is deleted by gc."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The scope version of ``id`` is ``scope_version`` and stays so until this has committed.

    Shared, unless ``exclusive``: then it waits for all sharers and makes new ones wait, so that
    what is looked at afterwards (absent names, listings) can not change before the commit. It
    does not bump the scope version: whoever waited may go on.
    """

    id: int
    scope_version: int
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Expect:
    """A validated read: the version of the entity (or owned row) ``id`` is still ``version``."""

    id: int
    version: int
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """No live entity has this name. Needs an exclusive guard on the parent.

    With ``owned``: the parent has no owned row of the kind ``family`` with this name.
    """

    parent_id: int
    family: str
    key: str
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The live children of ``parent_id`` of ``kind`` are these (id, version) and no others.

    Needs an exclusive guard on the parent. With ``owned`` they are its owned rows.
    """

    parent_id: int
    kind: str
    members: frozenset[tuple[int, int]]
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """What history and feed say of one write. ``changes`` is JSON text."""

    kind: str
    action: str
    path_before: str | None
    path_after: str | None
    changes: str = "[]"


@dataclass(frozen=True, slots=True)
class Insert:
    """A new entity at version 1, scope version 1. Without ``id`` the backend draws one."""

    parent_id: int
    kind: str
    family: str
    name: str
    key: str
    fold: bool
    doc: str
    event: Event
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entity stands: its parent and its name."""

    parent_id: int
    name: str
    key: str
    fold: bool


@dataclass(frozen=True, slots=True)
class Update:
    """One more version of the entity ``id``, whose version is ``version``.

    With ``scope_version`` the update is exclusive: that is expected too, and grows by one.
    Only then may place, state or in-use change. ``empty``: it must have no live children.
    """

    id: int
    version: int
    event: Event
    doc: str | None = None
    scope_version: int | None = None
    place: Place | None = None
    state: int | None = None
    in_use: bool | None = None
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Write an owned row of ``owner_id``; ``version`` is the one expected, 0 for a new row."""

    owner_id: int
    kind: str
    name: str
    version: int
    doc: str
    event: Event


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an owned row of ``owner_id``, whose version is ``version``."""

    owner_id: int
    kind: str
    name: str
    version: int
    event: Event


Write = Insert | Update | Put | Delete


@dataclass(frozen=True, slots=True)
class Commit:
    """One operation, ready to be applied in one attempt."""

    operation_id: UUID
    principal: str | None
    guards: tuple[Guard, ...] = ()
    reads: tuple[Expect | Absent | Listing, ...] = ()
    writes: tuple[Write, ...] = ()
    skip_existing: bool = False
    """Inserts whose name is taken are left out, instead of failing the commit."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a write came to: the id, the new version, and the database's time (µs since 1970)."""

    id: int
    version: int
    time: int


Cause = Literal["ancestor", "self", "name", "not_empty", "read", "serialization", "operation"]


@dataclass(frozen=True, slots=True)
class Committed:
    """Applied. One result for each write in order; None for an insert that was skipped."""

    results: tuple[Result | None, ...]


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Nothing was applied. ``cause`` says which precondition failed:

    ancestor (a guard), self (the version of what is written), name (taken), not_empty, read (a
    validated read), serialization (the database gave up: deadlock, lock time-out), operation
    (the operation id is known already). ``found`` is the version found, where it is known.
    """

    cause: Cause
    id: int | None = None
    found: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The answer was lost; ``reason`` says how, without secrets."""

    reason: str


Outcome = Committed | Conflicted | Unknown
