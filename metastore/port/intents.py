"""Operations that are announced before they are applied: intents, their resolutions, and marks.

A program applies the intents of others only if it knows their format.
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
"""The newest format of changes that this program knows. It does not apply other programs' changes of a newer format.

Raise it for a new change, for a change with a new meaning, or for a new kind of entity. That change or kind has the new
number as ``since``.
"""

WITH_EVIDENCE: Final = 4
"""The format of an intent that carries evidence, whatever its changes: older programs would not guard it."""


@value
class Entry:
    """An operation to write down without applying it: an intent, or an operation without effect.

    ``action`` is pending, failed or unchanged. ``path`` is where the intent's entity must be when the intent is
    applied; None: the entity with the id, at any path. An intent expires after ``seconds``.
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

    If the catalog has another scope version, or is not above the entity, nothing is written ("read").
    """
    reason: str | None = None
    """The caller's reason for the operation.

    The row keeps it even if another client applies the change.
    """


@value
class Resolution:
    """The result of one intent: applied (alter), failed, unchanged, moved or expired.

    An applied intent makes a version with the document ``doc``.
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

    All of them must still be pending. ``path`` is the entity's path, which the guards protect.
    """

    guards: tuple[Guard, ...]
    id: int
    version: int
    path: str
    resolutions: tuple[Resolution, ...]

    def results(self, time: int) -> tuple[Result, ...]:
        """Return the result of each resolution, with the version that it made."""
        versions = accumulate((one.action == "alter" for one in self.resolutions), initial=self.version)
        return tuple([Result(self.id, version, time) for version in list(versions)[1:]])


@value
class Mark:
    """Announce an exclusive operation on a scope: guards step aside until ``seconds`` have passed.

    A freeze also bumps the scope version, which waits for the writers in flight. The scope version must be
    ``scope_version`` before, and the guards must hold. It never waits for another mark.
    """

    operation_id: UUID
    id: int
    seconds: float
    scope_version: int | None = None
    guards: tuple[Guard, ...] = ()
