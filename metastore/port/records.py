"""The rows that a backend returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from metastore.port.commit import ROOT_ID

__all__ = [
    "ROOT",
    "Child",
    "Known",
    "Lookup",
    "Marked",
    "Node",
    "Origin",
    "OwnedRecord",
    "Pending",
    "Record",
    "Resolved",
    "RowPage",
    "Step",
    "T",
    "Turn",
]


class Node(NamedTuple):
    """One step of a path as it was seen: the guard row's content."""

    id: int
    kind: str
    name: str
    scope_version: int
    in_use: bool
    fold: bool


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
    """False: it was dropped when it was read, and is no guess for anything but its id."""


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


T = TypeVar("T")


ROOT = Node(ROOT_ID, "root", "", 1, True, False)
"""Where every path starts."""


class Lookup(NamedTuple):
    """A path to resolve: for each level the family and the name, from ``start`` on."""

    families: tuple[str, ...]
    names: tuple[str, ...]
    start: Node = ROOT


class Resolved(NamedTuple):
    """The live nodes that a lookup found from its start on; the record if it found the last."""

    nodes: tuple[Node, ...]
    record: Record | None


class Known(NamedTuple):
    """An entity found by its id, its chain reaching up to the root whatever the states on it."""

    record: Record
    state: int
    """Its own state."""
    live: bool
    """Whether it and all above it are live."""
    doomed: bool
    """Whether it or something above it is purging: gc may be deleting it at this moment."""


class Child(NamedTuple):
    """A child of the parent that was listed, and the key that the next page starts after."""

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
    """One page of a listing. ``held``: the guards it was asked under were still true."""

    held: bool
    rows: list[T]


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
    path_before: str | None
    path_after: str | None
    changes: str | None
    scope_version: int | None
    in_use: bool | None
    doc: str | None
    created_by: str | None
    created_at: int | None
    attempt: int | None = None
    deadline: int | None = None
    digest: str | None = None
    result: str | None = None
    format: int | None = None
    fences: str | None = None


class Pending(NamedTuple):
    """One entity and its intents, at one instant."""

    known: Known | None
    """The entity; None: it was purged."""
    own: Step | None
    """The row of the operation that asks."""
    intents: list[Step]
    """Those that are pending, oldest first; that of the operation that asks is always among them."""
    now: int
    """The database's time, in microseconds since 1970."""


class Turn(NamedTuple):
    """Where an intent stands."""

    own: Step | None
    """Its row, if it is decided or was withdrawn."""
    ahead: int
    """How many older intents of the entity are pending."""


class Marked(NamedTuple):
    """What stands in the way of a commit at one guard."""

    id: int
    mark: UUID | None
    """The exclusive operation that is announced; None: it is over, and others have their turn."""
    seconds: float
    """How long until the mark is expired (then negative), or until the others' turn is over."""


@dataclass(slots=True, eq=False)
class Origin:
    """Where an entity comes from: which database, and whether what the entity says is committed there.

    All entities that a transaction returns share one origin. It becomes committed when the transaction commits, and
    stays uncommitted if the transaction is refused or its outcome is unknown.
    """

    database: str
    committed: bool = True
