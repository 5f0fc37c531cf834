"""A commit is a value: preconditions, writes and their events, applied all or not at all.

This is the *minitransaction* of Sinfonia (SOSP 2007), or ``Txn(compare, then)`` in etcd.
A backend applies a commit in one attempt and answers with an outcome:

* :class:`Committed`: everything was applied, atomically; the results follow the writes' order;
* :class:`Conflicted`: nothing was applied, because a precondition did not hold; it says which;
* :class:`Unknown`: the acknowledgement was lost; only the operation id can tell.

A commit is always one logical operation, whose operation id is written with it. Operations that
are written down before they are applied (intents), and those that came to nothing, are an
:class:`Entry`; a commit that applies the intents of other operations is a :class:`Help`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final, Literal
from uuid import UUID

from metastore.port.value import value

__all__ = [
    "CLAIMABLE",
    "DROPPED",
    "DROPPING",
    "FORMAT",
    "LIVE",
    "PENDING",
    "PURGING",
    "ROOT_ID",
    "WITH_EVIDENCE",
    "Absent",
    "Advance",
    "Caller",
    "Cause",
    "Children",
    "Commit",
    "Committed",
    "Conflicted",
    "Delete",
    "Entry",
    "Event",
    "Expect",
    "Guard",
    "Help",
    "Insert",
    "LeaseToken",
    "Listing",
    "Mark",
    "Newest",
    "Outcome",
    "Place",
    "Put",
    "Read",
    "Relate",
    "Relations",
    "Resolution",
    "Result",
    "Unknown",
    "Update",
    "Write",
]

ROOT_ID = 0
"""The id of the root's guard row, the parent of all metalakes."""

LIVE, DROPPED, PURGING, DROPPING = 0, 1, 2, 3
"""The states of a guard row. What is purging cannot be restored and is deleted by gc.

What is dropping is being dropped in steps: it is not live, and no path leads to it, but it keeps its name, and its
parent is not empty. It becomes live again, or purging."""

PENDING = "pending"
"""The action of an operation that is written down and not decided yet: an intent."""

CLAIMABLE = ("forbidden", "moved", "expired", "cancelled")
"""The actions of operations that are not applied, and that only their owner may take up again."""


@value
class Guard:
    """The scope version of ``id`` is ``scope_version`` and stays so until this has committed.

    Shared, unless ``exclusive``: then it waits for all sharers and makes new ones wait, so that
    what is looked at afterwards (absent names, listings) cannot change before the commit. It
    does not bump the scope version: a commit that waited for it may go on.
    """

    id: int
    scope_version: int
    exclusive: bool = False
    bump: bool = False
    """The commit counts the scope version up: what was granted on the old one is not valid any more. With ``exclusive``
    only."""


@value
class Expect:
    """A validated read: the version of the entity (or owned row) ``id`` is still ``version``."""

    id: int
    version: int
    owned: bool = False


@value
class Absent:
    """No live entity has this name. Needs an exclusive guard on the parent.

    With ``owned``: the parent has no owned row of the kind ``family`` with this name.
    """

    parent_id: int
    family: str
    key: str
    owned: bool = False


@value
class Listing:
    """The children of ``parent_id`` of ``kind``, in this state, are these (id, version) and no others.

    Needs an exclusive guard on the parent. With ``owned`` they are its owned rows.
    """

    parent_id: int
    kind: str
    members: frozenset[tuple[int, int]]
    owned: bool = False
    state: int = LIVE


@value
class Children:
    """Whether a live entity of any kind stands below ``parent_id``, besides some. Needs an exclusive guard on it."""

    parent_id: int
    besides: frozenset[int]
    there: bool


@value
class Newest:
    """Of what was dropped under this name and can be restored, ``id`` is the newest; None: there is nothing.

    Needs an exclusive guard on the parent.
    """

    parent_id: int
    kind: str
    family: str
    key: str
    id: int | None


@value
class Relations:
    """The relations of ``kind`` at the entity ``id`` are these (id, version) and no others.

    Those that go from it; with ``slot`` only those in that slot; with ``incoming`` those that lead to it. Needs an
    exclusive guard on the entity.
    """

    id: int
    kind: str
    members: frozenset[tuple[int, int]]
    slot: int | None = None
    incoming: bool = False


Read = Expect | Absent | Listing | Children | Newest | Relations


@value
class LeaseToken:
    """The lease ``name`` has the token ``token``, and keeps it until this has committed.

    Whether its time is over is not asked: the token changes with each acquisition, release and break. The
    ``incarnation`` is the holder's; ``id`` is the lease's, under which the feed and the audit know it.
    """

    name: str
    id: int
    token: int
    incarnation: str


@value
class Event:
    """What history and feed say of one write. ``changes`` is JSON text."""

    kind: str
    action: str
    path_before: str | None
    path_after: str | None
    changes: str = "[]"
    other_path: str | None = None
    """Of a relation: the path of its other end."""


@value
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


@value
class Place:
    """Where an entity stands: its parent and its name."""

    parent_id: int
    name: str
    key: str
    fold: bool


@value
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


@value
class Put:
    """Write an owned row of ``owner_id``; ``version`` is the one expected, 0 for a new row.

    ``id``: the row's, which tells it from one that was made after it was deleted. 0: the same commit makes the row.
    """

    owner_id: int
    kind: str
    name: str
    version: int
    doc: str
    event: Event
    id: int = 0


@value
class Delete:
    """Delete an owned row of ``owner_id``, whose version is ``version``; ``id`` as in :class:`Put`."""

    owner_id: int
    kind: str
    name: str
    version: int
    event: Event
    id: int = 0


@value
class Relate:
    """Write a relation, or remove it; ``version`` is the one expected, 0 for a new one, ``id`` is as in :class:`Put`.

    Its key is (from_id, kind, slot, column_id, value). ``slot`` is ``to_id``; or 0, so that the key itself lets one
    relation of the kind go from an entity. ``doc`` is what history keeps of it.
    """

    from_id: int
    kind: str
    slot: int
    column_id: int
    value: str
    to_id: int
    version: int
    doc: str
    event: Event
    id: int = 0
    removes: bool = False


Write = Insert | Update | Put | Delete | Relate


@value
class Advance:
    """A consumer of the feed has read up to ``to``. Its stored position must be ``seq``."""

    name: str
    seq: int
    to: int


@value
class Caller:
    """An operation id that the caller gave: when it was made (µs), and the fingerprint of the arguments.

    An id from the future, or so old that gc may have forgotten it, is refused inside the commit.
    """

    issued: int
    digest: str


@value
class Commit:
    """One operation, ready to be applied in one attempt."""

    operation_id: UUID
    principal: str | None
    guards: tuple[Guard, ...] = ()
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    skip_existing: bool = False
    """Inserts whose name is taken are left out, instead of failing the commit."""
    claim: int = 0
    """The number under which the operation's row was claimed, which this commit replaces; 0: it has none yet."""
    caller: Caller | None = None
    held: int | None = None
    """The guard that carries this operation's mark. It must still do so; the commit takes it away."""
    ticket: int | None = None
    """The number of the operation's own ticket: only older ones hinder it. None, or one that is gone: each one does."""
    leaves: tuple[int, ...] = ()
    """The commit removes the ticket from these entities."""
    carries: tuple[Help, ...] = ()
    """Intents that are resolved on top of the commit's own writes, in the order given. Each expects the version that
    the commit leaves behind, and overlooks what else is pending on its entity."""
    overlook: bool = False
    """Pending intents do not hinder it: they are not understood, or the scope is frozen and they wait."""
    leases: tuple[LeaseToken, ...] = ()
    """The leases under which it is done: their tokens must still be these."""
    publishes: tuple[UUID, ...] = ()
    """What was staged under the leases and becomes visible by this commit. It must not be published yet."""
    patience: int | None = None
    """How long to wait for others' locks (milliseconds) before it is a conflict ("busy"); None: until the deadline."""
    advance: Advance | None = None
    """The position of a consumer that moves with it."""
    evidence: tuple[tuple[int, int], ...] = ()
    """The guards (id, scope version) on which a user's right to do it rests. The operation's first row notes them."""


@value
class Result:
    """What a write came to: the id, the new version, and the database's time (µs since 1970)."""

    id: int
    version: int
    time: int


@value
class Entry:
    """An operation to write down without applying it: an intent, or what came to nothing.

    ``action`` is pending, failed or unchanged. ``path`` is where an intent's entity must be when
    it is applied; None: it means the id, wherever that is. ``seconds`` until an intent expires.
    """

    operation_id: UUID
    action: Literal["pending", "failed", "unchanged"]
    principal: str | None
    entity_id: int | None = None
    kind: str | None = None
    path: str | None = None
    changes: str | None = None
    format: int | None = None
    seconds: float = 0.0
    result: str | None = None
    claim: int = 0
    caller: Caller | None = None
    evidence: tuple[tuple[int, int], ...] = ()
    """Of a user's intent: the guards on which the right to it rests. A helper applies it only under these."""
    settled: tuple[int, int] | None = None
    """An id and its scope version now: under another one nothing is written down (read)."""


@value
class Resolution:
    """What becomes of one intent: applied (alter), failed, unchanged, moved or expired.

    An applied one makes a version, whose document is ``doc``.
    """

    operation_id: UUID
    action: Literal["alter", "failed", "unchanged", "moved", "expired"]
    principal: str | None
    doc: str | None = None
    result: str | None = None
    changes: str | None = None
    """The changes that history records; None: the intent's changes."""


@value
class Help:
    """Resolve intents of one entity, in order, with one compare-and-swap of its row.

    All of them must still be pending. ``path`` is where the entity is, which the guards hold.
    """

    guards: tuple[Guard, ...]
    id: int
    version: int
    path: str
    resolutions: tuple[Resolution, ...]

    def results(self, time: int) -> tuple[Result, ...]:
        """Return the result of each resolution: the version that it left behind."""
        versions = accumulate((one.action == "alter" for one in self.resolutions), initial=self.version)
        return tuple([Result(self.id, version, time) for version in list(versions)[1:]])


@value
class Mark:
    """Announce an exclusive operation on a scope: guards step aside for it until ``seconds`` have passed.

    A freeze bumps the scope version as well, which waits for the writers in flight; it must be
    ``scope_version`` before, and the guards must hold. It never waits for another mark.
    """

    operation_id: UUID
    id: int
    seconds: float
    scope_version: int | None = None
    guards: tuple[Guard, ...] = ()


Cause = Literal[
    "ancestor",
    "self",
    "name",
    "not_empty",
    "read",
    "serialization",
    "operation",
    "pending",
    "marked",
    "busy",
    "stale_id",
    "claim",
    "lease",
    "ticket",
]


@value
class Committed:
    """Applied. One result for each write in order; None for an insert that was skipped."""

    results: tuple[Result | None, ...]


@value
class Conflicted:
    """Nothing was applied. ``cause`` says which precondition failed; ``found`` is the version found, where known.

    * ``ancestor``: a guard; ``self``: the version of what is written; ``read``: a validated read;
    * ``name``: it is taken; ``not_empty``: it has children;
    * ``operation``: the operation id is known already; ``stale_id``: the caller's is too old, or from the future;
    * ``claim``: another message has claimed the operation's row; ``lease``: a lease has another token by now;
    * ``pending``: there are intents that the commit does not resolve;
    * ``ticket``: another transaction is in line for what is written;
    * ``marked``: another operation is announced on a scope, or has just had its turn;
    * ``busy``: a lock could not be acquired within the patience; ``serialization``: the database found a deadlock.
    """

    cause: Cause
    id: int | None = None
    found: int | None = None


@value
class Unknown:
    """The answer was lost; ``reason`` says how, without secrets."""

    reason: str


Outcome = Committed | Conflicted | Unknown


FORMAT: Final = 4
"""The newest format of changes that this program knows; it applies those of other programs only up to this.

A change that means something else than before, or a new one, or a new kind of entity, counts it up, and carries the
new number as ``since``.
"""

WITH_EVIDENCE: Final = 4
"""The format of an intent that carries evidence, whatever its changes: older programs would not guard it."""
