"""What a backend does: apply a commit in one attempt, and answer a handful of reads.

``commit`` promises: if and only if it answers :class:`Committed`, every precondition held at
one instant and everything was written at that instant. It never retries and never sleeps.
Each read sees one instant, and is one round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable
from uuid import UUID

from metastore.port.commit import Commit, Entry, Help, Mark, Outcome
from metastore.port.leases import LeaseRows
from metastore.port.records import (
    Child,
    Known,
    Lookup,
    Marked,
    Origin,
    OwnedRecord,
    Page,
    Pending,
    Resolved,
    Step,
    Turn,
)
from metastore.port.restore import Restorer
from metastore.port.search import Found, Search
from metastore.port.snapshot import Fence, Snapshot
from metastore.port.stats import DatabaseStats, PoolUse

__all__ = [
    "DRIFT",
    "FORMAT",
    "LONGEST_QUIET",
    "MOST_AHEAD",
    "QUIET",
    "TOMBSTONES_STAY",
    "Backend",
    "Embedded",
    "Fence",
    "Found",
    "Guards",
    "Search",
    "Snapshot",
]


FORMAT = 4
"""The format of the schema that this program needs; migrations count it up in ``info``."""

TOMBSTONES_STAY = 3_600_000_000
"""How much longer than the retention a tombstone stays (µs): an original may be late."""

QUIET = 50_000
"""How long a scope takes no new mark after one was cleared (µs), at least: the others' turn."""

LONGEST_QUIET = 5_000_000
"""And at most (µs), however long the mark was held."""

MOST_AHEAD = 5_000_000
"""How far ahead of the database's clock what was noted may lie (µs); further ahead, the clock was set back since."""

DRIFT = 60_000_000
"""How far a caller's clock may be from the database's (µs), for operation ids that callers give."""


Guards = Sequence[tuple[int, int]]


class Backend(Protocol):
    """The port. Three keep it: PostgreSQL, SQLite, and the memory model that is the oracle."""

    def commit(self, commit: Commit) -> Outcome:
        """Apply ``commit`` atomically, in one attempt."""
        ...

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path over live nodes as far as it leads."""
        ...

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        """Return each entity, in whatever state."""
        ...

    def hold(self, guards: Guards) -> bool:
        """Whether all these (id, scope version) are true, at one instant."""
        ...

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        """Whether an entity has live children besides these."""
        ...

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> Page[Child]:
        """Return the children in this state after (key, id), by key and id."""
        ...

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> Page[tuple[str, str]]:
        """Return (key, name) of the live children after ``after``, by key."""
        ...

    def find(self, search: Search) -> Found:
        """Return what is looked for among the next rows of a scan; all of it true at one instant."""
        ...

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        """Return the child of this kind and name that was dropped last and can be restored."""
        ...

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> Page[OwnedRecord]:
        """Return owned rows after the name ``after``, by name."""
        ...

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        """Return the owned row of each (owner, name)."""
        ...

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        """Return the steps of an entity or owned row with a version greater than ``after``."""
        ...

    def feed(self, after: int, limit: int) -> Page[Step]:
        """Return the steps with a position greater than ``after`` that are decided, in order.

        ``held`` is False when later ones are there that are not decided yet: ask again.
        """
        ...

    def feed_start(self) -> tuple[str, int]:
        """Return the epoch and the last position that gc has removed."""
        ...

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        """Return which operation has a position, and whether this is a replica, which may not have it yet."""
        ...

    def reserve_ids(self, count: int) -> list[int]:
        """Return new ids that nobody else will get."""
        ...

    def now(self) -> int:
        """Return the database's time, in microseconds since 1970."""
        ...

    def dropped_before(self, time: int, limit: int) -> list[int]:
        """Return the ids of entities that were dropped before ``time`` and are not purging yet."""
        ...

    def purging(self, limit: int) -> list[int]:
        """Return the ids of entities that wait for their deletion."""
        ...

    def below(self, entity_id: int, limit: int) -> list[tuple[int, str]]:
        """Return (id, kind) of children, in whatever state."""
        ...

    def delete_entities(self, ids: Sequence[int]) -> int:
        """Delete what no path leads to any more, with its owned rows, unless it has children."""
        ...

    def forget(self, before: int) -> None:
        """Refuse operation ids that are older than ``before`` from now on: their rows may be deleted.

        What an earlier call left behind is lowered to the clock if it lies ahead of it: the clock was set back since,
        and no id would be accepted until it is there again.
        """
        ...

    def delete_steps(self, before: int, keep: int, after: int, limit: int) -> tuple[int | None, int, int]:
        """Look at ``limit`` steps after a position; delete what is older than ``before`` and not needed.

        Needed are the newest ``keep`` versions of what still exists. Returns the last position
        looked at (None: there were none), and how many versions and other steps were deleted.
        """
        ...

    # --- operations that are written down

    def write_down(self, entry: Entry) -> Outcome:
        """Insert an operation's row, or replace the one that was claimed. One attempt.

        Its one result says when, and in place of a version how many other intents the entity had.
        """
        ...

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int) -> Pending:
        """Return an entity with its ``limit`` oldest intents, and the row of the operation that asks."""
        ...

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        """Return what became of an intent, or how many are before it."""
        ...

    def help(self, help: Help) -> Outcome:
        """Resolve intents. One attempt; a result for each of them."""
        ...

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        """Make impossible whatever was sent for this operation and is not applied yet.

        Returns the number under which its owner may claim it; None: it is pending or decided. Raises OutcomeUnknown
        if there is no row, and gc may have deleted one that is ``life`` seconds old: the operation may be applied.
        """
        ...

    def cancel(self, operation_id: UUID) -> bool:
        """Withdraw an intent; False: it is not pending."""
        ...

    def steps(self, operation_id: UUID) -> list[Step]:
        """Return what an operation wrote."""
        ...

    # --- marks

    def mark(self, mark: Mark) -> Outcome:
        """Set a mark where there is none and nobody else has his turn. One attempt, without waiting for a mark."""
        ...

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        """Take one's own mark away; False: it is gone."""
        ...

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        """Return what stands in the way at these guards."""
        ...

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        """Take away another's mark that has expired, with a new scope version; False: there is none."""
        ...

    def stats(self, since: int, limit: int) -> DatabaseStats:
        """Return what ``metastore stats`` shows: of the last ``since`` microseconds, at most ``limit`` of each."""
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Read whole tables at one instant, while others go on writing.

        For ``verify`` and exports: they alone may keep a (read-only) transaction open while
        Python runs. Nothing else may be asked of the backend by the same thread meanwhile.
        """
        ...

    def fence(self) -> Fence:
        """Return what was drawn by now."""
        ...

    def passed(self, fence: Fence) -> bool:
        """Whether everything up to a fence is decided: a snapshot from now on shows all of it that is committed."""
        ...

    @property
    def leases(self) -> LeaseRows:
        """The rows of the leases."""
        ...

    def restorer(self) -> Restorer:
        """Write rows below the managers, in bulk: for the restore of a whole database only."""
        ...

    @property
    def origin(self) -> Origin:
        """Which database this is, as it was read last: what all entities of it carry."""
        ...

    def identify(self) -> Origin:
        """Read again which database this is: a restore through another store makes it another one."""
        ...

    def format(self) -> tuple[int, int] | None:
        """Return the format of the schema and the oldest one it is compatible with; None: there is none."""
        ...

    def pool_use(self) -> PoolUse | None:
        """Return how many connections are in use; None: it has none."""
        ...

    def ping(self) -> None:
        """Ask the database for an answer."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


@runtime_checkable
class Embedded(Protocol):
    """A backend that makes its own schema."""

    def migrate(self) -> None:
        """Make or upgrade the schema."""
        ...
