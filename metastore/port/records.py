"""The rows that a backend returns, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from metastore.names import format_path
from metastore.port.conditions import DROPPING, LIVE, PURGING, ROOT_ID
from metastore.port.tickets import NOBODY, Line


class Node(NamedTuple):
    """One node of a path as it was read: the content of its guard row."""

    id: int
    kind: str
    name: str
    scope_version: int
    in_use: bool
    fold: bool


def path_of(nodes: Iterable[Node]) -> str:
    """Return the path of the last of these nodes, which lead down from the root."""
    return format_path([node.name for node in nodes])


class Record(NamedTuple):
    """An entity as it was read: its path (itself last), its version and its document."""

    chain: tuple[Node, ...]
    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int
    live: bool = True
    """False: the entity was dropped when it was read. Then only its id may be used as a guess."""

    @property
    def path(self) -> str:
        """The path that it had when it was read."""
        return path_of(self.chain)

    @property
    def folded(self) -> bool:
        """Whether its own name is compared without case."""
        return len(self.chain) > 1 and self.chain[-2].fold


class OwnedRecord(NamedTuple):
    """An owned row as it was read."""

    id: int
    owner_id: int
    kind: str
    name: str
    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int


K = TypeVar("K")
T = TypeVar("T")


ROOT = Node(ROOT_ID, "root", "", 1, True, False)
"""The root, where every path starts."""


class Lookup(NamedTuple):
    """A path to resolve: the family and the name on each level, from ``start`` on."""

    families: tuple[str, ...]
    names: tuple[str, ...]
    start: Node = ROOT


class Resolved(NamedTuple):
    """The live nodes that a lookup found, from its start on, and the last node's record if all nodes were found."""

    nodes: tuple[Node, ...]
    record: Record | None
    free: bool = False
    """The read has shown that no entity has the next name, live or being dropped."""


class Known(NamedTuple):
    """An entity read by its id. Its chain begins below the root; its nodes may be in any state."""

    record: Record
    state: int
    """The entity's own state."""
    live: bool
    """Whether the entity and all its ancestors are live."""
    doomed: bool
    """Whether the entity or an ancestor is purging: gc may be deleting it at this moment."""
    dropping: bool = False
    """Whether the entity or an ancestor is being dropped in steps."""

    @classmethod
    def of(cls, record: Record, states: Sequence[int]) -> Known:
        """Return an entity whose nodes have these states; its own is the last."""
        return cls(record, states[-1], all(s == LIVE for s in states), PURGING in states, DROPPING in states)


class Child(NamedTuple):
    """A child in a listing of its parent. The next page starts after its key and id."""

    key: str
    node: Node
    state: int
    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int

    def record(self, parents: tuple[Node, ...], *, live: bool = True) -> Record:
        """Return the child as an entity below ``parents``, which lead from the root to its parent."""
        chain = (*parents, self.node)
        audit = self.created_by, self.created_at, self.modified_by, self.modified_at
        return Record(chain, self.version, self.doc, *audit, live)


class RowPage(NamedTuple, Generic[T]):
    """One page of rows. ``held``: whether the guards held at the instant of the read."""

    held: bool
    rows: list[T]


def all_pages(read: Callable[[K], Sequence[T]], after: K, key: Callable[[T], K], size: int) -> Iterator[T]:
    """Yield the rows of all pages; ``read`` returns at most ``size`` rows after the key of the last row."""
    while True:
        rows = read(after)
        yield from rows
        if len(rows) < size:
            return
        after = key(rows[-1])


class Step(NamedTuple):
    """One row of the operation table."""

    operation_id: UUID
    ordinal: int
    seq: int | None
    entity_id: int | None
    version: int | None
    owner_id: int | None
    kind: str | None
    action: str
    principal: str | None
    time: int
    path_before: str | None = None
    path_after: str | None = None
    changes: str | None = None
    scope_version: int | None = None
    in_use: bool | None = None
    doc: str | None = None
    created_by: str | None = None
    created_at: int | None = None
    attempt: int | None = None
    deadline: int | None = None
    digest: str | None = None
    result: str | None = None
    format: int | None = None
    fences: str | None = None
    other_id: int | None = None
    """The end to which a relation leads; ``owner_id`` is the end from which it goes."""
    other_path: str | None = None
    """The path of the end to which a relation leads; ``path_before`` and ``path_after`` have only the other end's."""
    parent_id: int | None = None
    """From here on: the row after the step. The parent of an owned row is its owner."""
    name: str | None = None
    fold: bool | None = None
    state: int | None = None
    family: str | None = None
    """Only the step that took the name, and later steps that keep the name, have this and ``key``."""
    key: str | None = None
    through: int | None = None
    """For a commit with several rows: its last position. Before it, the past shows none of the rows."""


class Pending(NamedTuple):
    """An entity and its intents, at one instant."""

    known: Known | None
    """The entity; None: it was purged."""
    own: Step | None
    """The row of the calling operation."""
    intents: list[Step]
    """The pending intents, oldest first; that of the calling operation is always among them."""
    now: int
    """The database's time, in microseconds since 1970."""
    queued: bool = False
    """A transaction is in line for the entity, so the intents must wait."""
    line: Line = NOBODY
    """The tickets before the given one."""


class Turn(NamedTuple):
    """The distance of an intent from being applied."""

    own: Step | None
    """The intent's row if it is decided or was withdrawn; None: it is pending."""
    ahead: int
    """The number of older pending intents of the entity."""
    line: Line = NOBODY
    """Who is in line for the entity."""


class Marked(NamedTuple):
    """The obstacle to a commit at one guard."""

    id: int
    mark: UUID | None
    """The announced exclusive operation; None: it has ended, and the others have their turn."""
    seconds: float
    """Seconds until the mark expires (negative: it has expired), or until the others' turn ends."""


@dataclass(eq=False)
class Origin:
    """The origin of an entity: its database, and whether the entity's state is committed there.

    All entities that a transaction returns share one origin. It becomes committed when the transaction commits. It
    stays uncommitted if the transaction is refused, or if its outcome is unknown.
    """

    database: str
    committed: bool = True
    run: str | None = None
    """The run of the server.

    Commits can be lost only between two runs; the database may then give an id or version again. None: a view of the
    past has no run.
    """
    drafted: bool = False
    """Its entities belong to a transaction, which wrote some of their times itself."""
    written_at: int | None = None
    """When the transaction wrote, by the database's clock; 0: it wrote nothing. None: unknown."""
