"""The port: a backend's operations as small protocols, and :class:`Backend`, which combines them.

``commit`` promises: if and only if it returns :class:`Committed`, every precondition held at one instant, and
everything was written at that instant. It never retries and never sleeps. Each read sees one instant, and takes one
round trip. Each function names the protocol that it uses, so its signature shows what it may do.
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
"""How much longer than the retention a tombstone stays (µs), because the original commit may arrive late."""

QUIET = 50_000
"""The shortest time in which a scope takes no new mark after one was cleared (µs): the turn of others."""

LONGEST_QUIET = 5_000_000
"""The longest such time (µs), even if the mark was held longer."""

MOST_AHEAD = 5_000_000
"""How far ahead of the database's clock a stored time may be (µs). A later time means that the clock was set back."""

DRIFT = 60_000_000
"""How far a caller's clock may differ from the database's (µs), because callers make operation ids by their clocks."""


T = TypeVar("T")
Guards = Sequence[tuple[int, int]]
"""(id, scope version) of each scope under which a page is read."""


class Reads(Protocol):
    """The commit, and the reads that managers need. A transaction's overlay implements exactly this protocol.

    Each read sees one instant and takes one round trip.
    """

    @property
    def origin(self) -> Origin:
        """The identity of the database as last read. All entities from the database refer to it."""

    def identify(self) -> Origin:
        """Read the identity of the database again, because a restore through another store changes it."""

    def commit(self, commit: Commit) -> CommitOutcome:
        """Apply ``commit`` atomically, in one attempt. Return Committed if and only if it was applied."""

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
        """Return the child of this kind and name that was dropped last and can be restored; None: no such child."""

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        """Return at most ``limit`` owned rows after the name ``after``, ordered by name."""

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        """Return the owned row of each (owner, name); None: no such row."""

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        """Return the entity at a path, or with an id, and its owned rows of two kinds that have one of these names.

        None: no live entity has the path, or no entity, in any state, has the id.
        """

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        """Return the entity at a path, or with an id, and the relations of ``kind`` that go from it.

        ``above``: include the relations that go from its ancestors. ``doc``: include its document. None: no live entity
        has the path, or no entity, in any state, has the id.
        """

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        """Return an entity and the next ``limit`` relations of ``kind`` that lead to it, live or not.

        They come after (value, from_id, column_id), in that order. With ``value``, only relations with this value.
        None: no entity has this id.
        """

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        """Return an entity and the next ``limit`` relations of ``kind`` that go from it, live or not.

        They come after (slot, column_id, value), in that order, without documents. None: no entity has this id.
        """

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        """Return the relations of ``kind`` in each (from_id, slot), in no order."""

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        """Return the steps of an entity or owned row with a version greater than ``after``."""


class Rights(Protocol):
    """The rows from which a user's rights are decided."""

    def rights(self, whose: Whose, places: Sequence[int], below: int | None) -> RightRows:
        """Return a user's rights at these entities, in any state, and at the children of ``below``."""

    def nodes(self, ids: Sequence[int]) -> dict[int, tuple[Node, ...]]:
        """Return the nodes that lead to each entity, in any state. Purged entities are left out."""

    def resolve_rights(self, lookup: Lookup, user: str) -> tuple[Resolved, RightRows]:
        """Follow a path from the root; return also the user's rights at the nodes, in the metalake of the path.

        Both come from one instant.
        """

    def resolve_holding(self, lookup: Lookup, guards: Guards) -> tuple[Resolved, bool]:
        """Follow a path, and say whether these guards hold at the same instant.

        For a path that leads nowhere, the answer may be False although the guards hold.
        """

    def by_id_holding(self, ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        """Return each entity, and whether these guards hold at the same instant: see ``resolve_holding``."""

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
        """Return the same as ``children``, but only the chosen ones. Documents of others are not read."""

    def names_chosen(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards, chosen: Chosen
    ) -> RowPage[tuple[str, str]]:
        """Return the same as ``names``, for the chosen children only."""


class Intents(Protocol):
    """Operations that are written down before they are applied, so that any client can apply them."""

    def write_down(self, entry: Entry) -> CommitOutcome:
        """Insert an operation's row, or replace a claimed one. Make one attempt.

        The only result has the time and, as its version, the number of other pending intents of the entity.
        """

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int, ticket: int | None = None) -> Pending:
        """Return an entity with its ``limit`` oldest intents, and the row of the calling operation.

        ``ticket``: return also the line before this ticket at the same instant.
        """

    def scopes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the scope version of each guard that exists."""

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        """Return the outcome of an intent, or the number of intents before it."""

    def help(self, help: Help) -> CommitOutcome:
        """Resolve intents in one attempt, with a result for each."""

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        """Ensure that no message sent for this operation is applied from now on.

        Return the number under which the operation's client may claim it; None: it is pending or decided. Raises
        OutcomeUnknown if the row is missing, and gc may have deleted one that is ``life`` seconds old: the operation
        may have been applied.
        """

    def confirm(self, operation_id: UUID) -> list[Step]:
        """Return the rows of ``steps`` once they are as durable as an acknowledged commit.

        A commit may be readable before it is durable: a server that is stopped while it waits for a replica still
        applies the commit. The read and the confirmation go to one server, because after a fail-over another server may
        lack the rows.
        """

    def cancel(self, operation_id: UUID) -> bool:
        """Withdraw an intent; return False if it is not pending."""

    def steps(self, operation_id: UUID) -> list[Step]:
        """Return the rows of history that an operation wrote."""


class Marks(Protocol):
    """Marks that announce exclusive operations on a scope; guards step aside for them."""

    def mark(self, mark: Mark) -> CommitOutcome:
        """Set a mark, unless the scope has a mark already or the others have their turn.

        It makes one attempt, and never waits for a mark.
        """

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        """Remove the mark of this operation; return False if the mark was gone already."""

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        """Return the marks at these guards, and the others' turns there, that prevent a commit."""

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        """Remove another operation's expired mark, and raise the scope version; return False if there is none."""


class Content(Protocol):
    """The content of the whole database: search, statistics, snapshot, restore."""

    def find(self, search: Search) -> Matches:
        """Return the matches among the next rows of a scan. All of them are true at one instant."""

    def search_sizes(self, span: Span, most: Sizes) -> Sizes:
        """Return how many rows each way of searching would read, counted up to the limits ``most``."""

    def stats(self, since: int, limit: int) -> DatabaseStats:
        """Return the statistics of ``metastore stats`` for the last ``since`` µs, with at most ``limit`` rows each."""

    def snapshot(self) -> AbstractContextManager[TableSnapshot]:
        """Read whole tables at one instant, while other clients continue to write.

        Only ``verify`` and exports use it: only they may keep a (read-only) transaction open while Python runs. In this
        time the same thread must not call another method of the backend.
        """

    def restorer(self) -> Restorer:
        """Return the bulk writer below the managers, which only the restore of a whole database uses."""


class Database(Protocol):
    """The database itself: its clock, its numbers, its schema's format, its connections."""

    def now(self) -> int:
        """Return the database's time, in microseconds since 1970."""

    def reserve_ids(self, count: int) -> list[int]:
        """Return new ids, which no other client gets."""

    def format(self) -> tuple[int, int] | None:
        """Return the schema's format and the oldest format compatible with it; None: the schema does not exist."""

    def pool_use(self) -> PoolUse | None:
        """Return how many connections are in use; None: the backend has none."""

    def ping(self) -> None:
        """Ask the database for an answer. Raises BackendUnavailable."""

    def in_one_go(self, work: Callable[[], T], *, for_many: bool = False) -> T:
        """Run ``work``, which sends several messages, with no other work of the process in between; return its result.

        (Otherwise the event loop of an async store could run all other tasks between two messages. So ``work`` must not
        sleep: it has a thread of its own. ``for_many``: other calls wait for it.)
        """

    def close(self) -> None:
        """Close all connections."""


class Backend(Reads, Rights, Intents, Marks, Tickets, Feed, Upkeep, Content, Database, Protocol):
    """The whole port. Three backends implement it: PostgreSQL, SQLite, and the memory model, the tests' oracle."""

    @property
    def known_origin(self) -> Origin | None:
        """The backend's origin if it is known without a query; otherwise None."""

    @property
    def leases(self) -> LeaseRows:
        """The rows of the leases."""

    @property
    def past(self) -> PastRows:
        """The reads of the past."""

    @property
    def readers(self) -> Readers:
        """The pins, and the consumers of the feed."""

    @property
    def secret_keys(self) -> SecretKeys:
        """The data keys of encrypted properties."""


PARTS: Final = ("past", "readers", "secret_keys")
"""The parts that are ports too; a wrapper of the backend's calls must wrap theirs. Leases outlive calls."""


@runtime_checkable
class Embedded(Protocol):
    """A backend that creates its own schema."""

    def migrate(self) -> None:
        """Create or upgrade the schema."""
