"""Operations that are announced before they are applied: intents, how they are resolved, and marks.

A program applies the intents of others only up to the format that it knows.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final, Literal
from uuid import UUID

from metastore.port.conditions import Caller, Guard
from metastore.port.value import value
from metastore.port.writes import Result

PENDING = "pending"
"""The action of an operation that is written down and not decided yet: an intent."""

CLAIMABLE = ("forbidden", "moved", "expired", "cancelled")
"""The actions of operations that were not applied; only their owner may try them again."""

FORMAT: Final = 4
"""The newest format of changes that this program knows; it applies other programs' changes only up to this format.

Count it up for a new change, a change with a new meaning, or a new kind of entity; that change or kind carries the new
number as ``since``.
"""

WITH_EVIDENCE: Final = 4
"""The format of an intent that carries evidence, whatever its changes: older programs would not guard it."""


@value
class Entry:
    """An operation to write down without applying it: an intent, or an operation that had no effect.

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
    """For a user's intent: the guards on which the right to it rests. A helper applies the intent only under them."""
    settled: tuple[int, int] | None = None
    """A catalog and its present scope version.

    If it has another scope version, or is not above the entity, the commit writes nothing and conflicts ("read").
    """
    reason: str | None = None
    """The reason for the operation, in its caller's words.

    The row keeps it, also if another client applies the change.
    """


@value
class Resolution:
    """The result of one intent: applied (alter), failed, unchanged, moved or expired.

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
