"""The rows of relations, as a backend returns them.

A relation goes from an entity, or from a column of it, to another entity. It is live while both ends are live and in
one metalake, and the column exists. The row does not say whether that is so: a read returns both ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metastore.port.conditions import LIVE
from metastore.port.records import Known, Node, OwnedRecord

NO_COLUMN = 0
"""The ``column_id`` of a relation that goes from an entity itself."""

ONLY = 0
"""The ``slot`` of all relations of an exclusive kind: the unique key then allows one such relation from an entity."""

NO_VALUE = ""
"""The ``value`` of a relation without one."""


class RelationKey(NamedTuple):
    """The columns that identify a relation."""

    from_id: int
    kind: str
    slot: int
    column_id: int
    value: str


class RelationRecord(NamedTuple):
    """A relation as it was read."""

    from_id: int
    kind: str
    slot: int
    """The id of the other end; 0 if the kind allows an entity at most one relation."""
    column_id: int
    value: str
    id: int
    to_id: int
    version: int
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int

    @property
    def key(self) -> RelationKey:
        return RelationKey(self.from_id, self.kind, self.slot, self.column_id, self.value)


def incoming_order(row: RelationRecord) -> tuple[str, int, int]:
    """Return a relation's place in pages of the relations that lead to one entity."""
    return row.value, row.from_id, row.column_id


def outgoing_order(row: RelationRecord) -> tuple[int, int, str]:
    """Return a relation's place in pages of the relations that go from one entity."""
    return row.slot, row.column_id, row.value


@dataclass(frozen=True, slots=True)
class End:
    """An entity at the end of a relation: the nodes from below the root down to the entity, in any state.

    Without nodes, the entity was purged.
    """

    chain: tuple[Node, ...]
    live: bool
    """Whether the entity and all its ancestors are live."""


GONE = End((), live=False)
"""The end that was purged."""


def in_one_metalake(one: End, other: End) -> bool:
    """Return whether two ends are live and in one metalake. A relation is live only then, and if its column exists."""
    return one.live and other.live and one.chain[0].id == other.chain[0].id


def end_of(nodes: Sequence[tuple[Node, int]]) -> End:
    """Return the end at the last of ``nodes``, each with its state."""
    return End(tuple([node for node, _ in nodes]), bool(nodes) and all(state == LIVE for _, state in nodes))


def end_of_known(known: Known | None) -> End:
    """Return an entity that was read by its id as an end."""
    return GONE if known is None else End(known.record.chain, known.live)


@dataclass(frozen=True, slots=True)
class Related:
    """An entity, and the relations of one kind that go from it and from its ancestors."""

    end: End
    doc: str | None
    """The entity's document, if the read asked for it."""
    rows: list[tuple[RelationRecord, End]]
    """Each relation with its other end, in no order."""


@dataclass(frozen=True, slots=True)
class Relating:
    """An entity, and a page of the relations of one kind that lead to it or go from it."""

    end: End
    rows: list[tuple[RelationRecord, End, str | None]]
    """Each relation with its other end. If it comes from a column, it also has the document of that end.

    The order is that of an index. Relations to the entity: by value, by the other end's id, by column. Relations from
    the entity: by slot, by column, by value.
    """


@dataclass(frozen=True, slots=True)
class Owning:
    """An entity, and rows that it owns, in no order."""

    end: End
    rows: list[OwnedRecord]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a sweep of gc over some relations."""

    last: int | None
    """The id of the last relation that the sweep looked at; None: no relation was left."""
    deleted: int
    columns: tuple[tuple[int, int, int, str], ...]
    """The relations of columns: id, entity, column, and the document in which the column is or was."""
