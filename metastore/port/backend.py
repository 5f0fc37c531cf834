"""The port: the operations of a backend, as small protocols, and :class:`Backend`, their sum.

``commit`` promises: if and only if it returns :class:`Committed`, every precondition held at one instant, and
everything was written at that instant. It never retries and never sleeps. Each read sees one instant, and takes one
round trip. A function is typed on the protocol that it uses, so that its signature says what it may do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from metastore.port.commit import Commit, CommitOutcome
from metastore.port.feed import Feed
from metastore.port.intents import Entry, Help, Mark
from metastore.port.leases import LeaseRows
from metastore.port.past import PastRows, Readers
from metastore.port.records import (
    Child,
    Known,
    Lookup,
    Marked,
    Node,
    Origin,
    OwnedRecord,
    Pending,
    Resolved,
    RowPage,
    Step,
    Turn,
)
from metastore.port.relations import Owning, Related, Relating, RelationRecord
from metastore.port.restore import Restorer
from metastore.port.rights import Chosen, RightRows, Whose
from metastore.port.search import Matches, Search, Sizes, Span
from metastore.port.secret_keys import SecretKeys
from metastore.port.snapshot import TableSnapshot
from metastore.port.stats import DatabaseStats, PoolUse
from metastore.port.tickets import Tickets
from metastore.port.upkeep import Upkeep

TOMBSTONES_STAY = 3_600_000_000
"""How much longer than the retention a tombstone stays (µs): the original commit may arrive late."""

QUIET = 50_000
"""The shortest time for which a scope takes no new mark after one was cleared (µs): others have their turn."""

LONGEST_QUIET = 5_000_000
"""The longest such time (µs), however long the mark was held."""

MOST_AHEAD = 5_000_000
"""How far ahead of the database's clock a stored time may lie (µs). Beyond it, the clock was set back since then."""

DRIFT = 60_000_000
"""How far a caller's clock may be from the database's (µs): it dates the operation ids that callers give."""


T = TypeVar("T")
Guards = Sequence[tuple[int, int]]
"""(id, scope version) of each scope under which a page is read."""


class Reads(Protocol):
    """The commit, and the reads that managers need. A transaction's overlay keeps exactly this protocol.

    Each read sees one instant and takes one round trip.
    """

    @property
    def origin(self) -> Origin:
        """The identity of the database, as it was last read. All entities that come from the database carry it."""

    def identify(self) -> Origin:
        """Read the identity of the database again: a restore through another store changes it."""

    def commit(self, commit: Commit) -> CommitOutcome:
        """Apply ``commit`` atomically, in one attempt. Return Committed if and only if everything was applied."""

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path over live nodes, up to its end or to the first name that no live node has."""

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        """Return each entity, in any state; None: it was purged."""

    def hold(self, guards: Guards) -> bool:
        """Whether all these entities have these scope versions, at one instant."""

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        """Whether an entity has live children other than these."""

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        """Return at most ``limit`` children in this state after (key, id), ordered by key and id."""

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        """Return (key, name) of at most ``limit`` live children after the key ``after``, ordered by key."""

    def named(self, parent_id: int, family: str, key: str, guards: Guards) -> RowPage[Child]:
        """Return the only child that has a name: it is live, or it is being dropped in steps."""

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        """Return the child of this kind and name that was dropped last and can be restored; None: there is none."""

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        """Return at most ``limit`` owned rows after the name ``after``, ordered by name."""

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        """Return the owned row of each (owner, name); None: there is none."""

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        """Return the entity at a path, or with an id, and its owned rows of two kinds that have one of these names.

        None: no live entity has the path, or no entity, in any state, has the id.
        """

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        """Return the entity at a path, or with an id, and the relations of ``kind`` that go from it.

        ``above``: those that go from the entities above it too. ``doc``: with its document. None: no live entity has
        the path, or no entity, in any state, has the id.
        """

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        """Return an entity and the next ``limit`` relations of ``kind`` that lead to it, live or not.

        Those after (value, from_id, column_id), in that order; with ``value`` only those that have it. None: no entity
        has this id.
        """

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        """Return an entity and the next ``limit`` relations of ``kind`` that go from it, live or not.

        Those after (slot, column_id, value), in that order, without documents. None: no entity has this id.
        """

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        """Return the relations of ``kind`` in each (from_id, slot), in no order."""

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        """Return the steps of an entity or owned row with a version greater than ``after``."""


class Rights(Protocol):
    """The rows on which a decision about a user rests."""

    def rights(self, whose: Whose, places: Sequence[int], below: int | None) -> RightRows:
        """Return a user's rights at these entities, in any state, and at the children of ``below``."""

    def nodes(self, ids: Sequence[int]) -> dict[int, tuple[Node, ...]]:
        """Return the nodes that lead to each entity, in any state. Purged entities are left out."""

    def resolve_rights(self, lookup: Lookup, user: str) -> tuple[Resolved, RightRows]:
        """Follow a path from the root; return also the rights, at its nodes, of the user of this name in its metalake.

        Both come from one instant.
        """

    def resolve_holding(self, lookup: Lookup, guards: Guards) -> tuple[Resolved, bool]:
        """Follow a path, and say whether these guards are true at the same instant.

        For a path that leads nowhere, the answer may be False although the guards are true.
        """

    def by_id_holding(self, ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        """Return each entity, and whether these guards are true at the same instant; as ``resolve_holding``."""

    def children_chosen(
        self,
        parent_id: int,
        kind: str,
        family: str,
        state: int,
        after: tuple[str, int],
        limit: int,
        guards: Guards,
        chosen: Chosen,
    ) -> RowPage[Child]:
        """Return the same as ``children``, for the chosen children only. The documents of others are not read."""

    def names_chosen(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards, chosen: Chosen
    ) -> RowPage[tuple[str, str]]:
        """Return the same as ``names``, for the chosen children only."""


class Intents(Protocol):
    """Operations that are written down before they are applied, so that any client can apply them."""

    def write_down(self, entry: Entry) -> CommitOutcome:
        """Insert an operation's row, or replace the one that was claimed. One attempt.

        Its one result has the time and, in place of a version, the number of other intents of the entity.
        """

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int, ticket: int | None = None) -> Pending:
        """Return an entity with its ``limit`` oldest intents, and the row of the operation that asks.

        ``ticket``: return also who was in line before this ticket at the same instant.
        """

    def scopes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the scope version of each guard that exists."""

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        """Return the outcome of an intent, or how many intents are before it."""

    def help(self, help: Help) -> CommitOutcome:
        """Resolve intents. One attempt; a result for each of them."""

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        """Prevent that anything sent for this operation is still applied.

        Returns the number under which the operation's client may claim it; None: it is pending or decided. Raises
        OutcomeUnknown if the row is missing and gc may have deleted one that is ``life`` seconds old: the operation may
        have been applied.
        """

    def confirm(self, operation_id: UUID) -> list[Step]:
        """Return the rows of ``steps``, once they are as durable as an acknowledged commit.

        A commit may be readable before it is durable: a server that is told to stop while it waits for a replica
        applies the commit all the same. The same server reads and confirms: after a fail-over, another server may lack
        the rows that were read.
        """

    def cancel(self, operation_id: UUID) -> bool:
        """Withdraw an intent; False: it is not pending."""

    def steps(self, operation_id: UUID) -> list[Step]:
        """Return the rows of history that an operation wrote."""


class Marks(Protocol):
    """Exclusive operations that are announced on a scope: guards step aside for them."""

    def mark(self, mark: Mark) -> CommitOutcome:
        """Set a mark, unless the scope has one already or other operations have their turn.

        One attempt, which never waits for a mark.
        """

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        """Remove the mark of this operation; False: the mark was gone already."""

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        """Return the marks, and the turns of others, that hinder a commit at these guards."""

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        """Remove another operation's expired mark, and count up the scope version; False: no such mark."""


class Content(Protocol):
    """The content of the whole database: search, statistics, snapshot, restore."""

    def find(self, search: Search) -> Matches:
        """Return the matches among the next rows of a scan; all of it is true at one instant."""

    def search_sizes(self, span: Span, most: Sizes) -> Sizes:
        """Return how many rows each way of searching would read, counted up to ``most`` for each."""

    def stats(self, since: int, limit: int) -> DatabaseStats:
        """Return the statistics of ``metastore stats``: of the last ``since`` µs, at most ``limit`` rows each."""

    def snapshot(self) -> AbstractContextManager[TableSnapshot]:
        """Read whole tables at one instant, while other clients go on writing.

        Only ``verify`` and exports use it: they alone may keep a (read-only) transaction open while Python runs. The
        same thread must not call another method of the backend meanwhile.
        """

    def restorer(self) -> Restorer:
        """Return the writer of rows below the managers, in bulk: only for the restore of a whole database."""


class Database(Protocol):
    """The database itself: its clock, its numbers, its format, its connections."""

    def now(self) -> int:
        """Return the database's time, in microseconds since 1970."""

    def reserve_ids(self, count: int) -> list[int]:
        """Return new ids, which no other client gets."""

    def format(self) -> tuple[int, int] | None:
        """Return the format of the schema and the oldest one it is compatible with; None: the schema does not exist."""

    def pool_use(self) -> PoolUse | None:
        """Return how many connections are in use; None: the backend has none."""

    def ping(self) -> None:
        """Ask the database for an answer. Raises BackendUnavailable."""

    def in_one_go(self, work: Callable[[], T], *, for_many: bool = False) -> T:
        """Run ``work``, which sends several messages, without other work of the process in between; return its result.

        (In an async store the event loop would run all tasks that can run between two messages. So ``work`` does not
        sleep: it has a thread to itself. ``for_many``: other calls wait for it.)
        """

    def close(self) -> None:
        """Close all connections."""


class Backend(Reads, Rights, Intents, Marks, Tickets, Feed, Upkeep, Content, Database, Protocol):
    """The whole port. Three backends keep it: PostgreSQL, SQLite, and the memory model, which is the tests' oracle."""

    @property
    def known_origin(self) -> Origin | None:
        """The backend's origin if the database need not be asked for it; otherwise None."""

    @property
    def leases(self) -> LeaseRows:
        """The rows of the leases."""

    @property
    def past(self) -> PastRows:
        """Reads of the past."""

    @property
    def readers(self) -> Readers:
        """Pins, and consumers of the feed."""

    @property
    def secret_keys(self) -> SecretKeys:
        """The data keys of encrypted properties."""


PARTS: Final = ("past", "readers", "secret_keys")
"""The parts of a backend that are ports themselves, so what wraps its calls wraps theirs too. Leases outlive calls."""


@runtime_checkable
class Embedded(Protocol):
    """A backend that makes its own schema."""

    def migrate(self) -> None:
        """Make or upgrade the schema."""
