"""Read relations in both directions: from an object, with inheritance, and towards an entity.

Each read shows a relation, its two ends and all their ancestors as they were at one instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import TypeVar

from metastore.errors import EntityNotFound
from metastore.kinds.attached import Attached, attached
from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.kinds.relation import Relation
from metastore.managers.relations.ends import EndOf, find_ends, lookups_of
from metastore.managers.relations.writes import column_id, column_paths
from metastore.managers.target import in_hand, not_live, unless_back
from metastore.names import format_path
from metastore.operation.request import View
from metastore.operation.session import ManagerSession
from metastore.port.backend import Reads
from metastore.port.records import Node, Record, path_of
from metastore.port.relations import (
    NO_COLUMN,
    End,
    Related,
    Relating,
    RelationRecord,
    in_one_metalake,
    incoming_order,
    outgoing_order,
)

_FIRST, _PAGE = 100, 1000
"""How many index entries the first read, and each later read, looks at; fewer relations may be live."""

_MANY = 200
"""How many entities at the ends of relations are loaded at once."""

At = TypeVar("At", tuple[str, int, int], tuple[int, int, str])
"""A place in one of the two indexes."""


def related_end(backend: Reads, relation: Relation, end: EndOf, *, above: bool = False, doc: bool = False) -> Related:
    """Return a live entity and the relations that go from it. Raises EntityNotFound.

    This takes one round trip, unless a path may have several kinds.
    """
    target = end.target
    if isinstance(target, Entity):
        entity_id = target.id
        relations = in_hand(backend, target, lambda: backend.related(entity_id, relation.name, above=above, doc=doc))
        if relations is None or not relations.end.live:
            (known,) = backend.by_id([target.id])
            message = f"{target.path} (id {target.id}) is not there any more; load the path to see what is there"
            error = partial(not_live, backend, known, target.path, message)
            return unless_back(error, lambda: related_end(backend, relation, end, above=above, doc=doc))
        return relations
    while True:
        lookups = lookups_of(end)
        if len(lookups) == 1:
            ((lookup, kinds),) = lookups.items()
            relations = backend.related(lookup, relation.name, above=above, doc=doc)
            if relations is not None and relations.end.chain[-1].kind in [kind.name for kind in kinds]:
                return relations
        (record,) = find_ends(View(backend, False), end)  # raises if the end does not exist
        relations = backend.related(record.chain[-1].id, relation.name, above=above, doc=doc)
        if relations is not None and relations.end.live and tuple(n.name for n in relations.end.chain) == target:
            return relations


def related_to(
    backend: Reads, relation: Relation, end: EndOf, column: tuple[str, ...] | None, *, inherited: bool
) -> list[Attached]:
    """Return the relations of an object or column, nearest first; of several relations to one end, only the nearest."""
    relations = related_end(backend, relation, end, above=inherited, doc=column is not None)
    chain = relations.end.chain
    wanted = (
        NO_COLUMN if column is None else column_id(Record(chain, 0, relations.doc or "{}", None, 0, None, 0), column)
    )
    levels = {node.id: len(chain) - at for at, node in enumerate(chain)}  # the object itself has level 1

    def level(row: RelationRecord) -> int | None:
        """Return the distance of a relation from the object or column; 0: the relation is on the wanted column.

        None: the relation does not count for the object or column.
        """
        own = levels[row.from_id] == 1
        if row.column_id != NO_COLUMN:
            return 0 if own and row.column_id == wanted else None
        return levels[row.from_id] if inherited or wanted == NO_COLUMN else None

    live = [
        (at, row, far)
        for row, far in relations.rows
        if in_one_metalake(relations.end, far) and (at := level(row)) is not None
    ]
    nearest: dict[int, int] = {}
    for at, row, _ in live:
        nearest[row.to_id] = min(at, nearest.get(row.to_id, at))
    chosen = sorted(
        ((at, row, far) for at, row, far in live if nearest[row.to_id] == at),
        key=lambda one: (one[0], one[2].chain[-1].name, one[1].value),
    )
    first = 1 if column is None else 0
    return [
        attached(row, chain, far.chain, column, None if at == first else _ancestor(chain, row.from_id))
        for at, row, far in chosen
    ]


def related_to_columns(backend: Reads, relation: Relation, end: EndOf) -> list[Attached]:
    """Return the relations of the columns of an object, by the column's path and then by name."""
    relations = related_end(backend, relation, end, doc=True)
    chain = relations.end.chain
    paths = column_paths(relations.doc, chain[-1])
    found = [
        (names, row, far)
        for row, far in relations.rows
        if (names := paths.get(row.column_id)) is not None and in_one_metalake(relations.end, far)
    ]
    found.sort(key=lambda one: (one[0], one[2].chain[-1].name, one[1].value))
    return [attached(row, chain, far.chain, names) for names, row, far in found]


def _ancestor(chain: tuple[Node, ...], entity_id: int) -> str:
    at = next(n for n, node in enumerate(chain) if node.id == entity_id)
    return path_of(chain[: at + 1])


def relating_to(backend: Reads, relation: Relation, end: EndOf, value: str | None) -> Iterator[Attached]:
    """Yield the relations to an entity, page by page.

    Raises EntityNotFound, also if the entity is dropped or renamed meanwhile.
    """
    paths = lru_cache(maxsize=1)(column_paths)  # relations of one object's columns come one after the other
    for row, target, doc, other in live_relating(backend, relation, end, value):
        names = None if row.column_id == NO_COLUMN else paths(doc, target.chain[-1]).get(row.column_id)
        if row.column_id == NO_COLUMN or names is not None:
            yield attached(row, target.chain, other.chain, names)


def live_relating(
    backend: Reads, relation: Relation, end: EndOf, value: str | None = None
) -> Iterator[tuple[RelationRecord, End, str | None, End]]:
    """Yield each live relation that leads to an entity, with the end that it comes from, its document, and the entity.

    The column that a relation belongs to may be gone.
    """
    return _pages(
        backend,
        end,
        (value or "", 0, -1),
        lambda to_id, after, size: backend.relating(to_id, relation.name, value, after, size),
        incoming_order,
    )


def live_related(
    backend: Reads, relation: Relation, end: EndOf
) -> Iterator[tuple[RelationRecord, End, str | None, End]]:
    """Yield each live relation that goes from an entity, with the end that it leads to, None, and the entity.

    Ordered by the other end's id and by value, page by page.
    """
    return _pages(
        backend,
        end,
        (-1, 0, ""),
        lambda from_id, after, size: backend.related_page(from_id, relation.name, after, size),
        outgoing_order,
    )


def _pages(
    backend: Reads,
    end: EndOf,
    after: At,
    read: Callable[[int, At, int], Relating | None],
    key: Callable[[RelationRecord], At],
) -> Iterator[tuple[RelationRecord, End, str | None, End]]:
    """Yield the live relations at an entity. Raises EntityNotFound, also if it is dropped or renamed meanwhile."""
    (record,) = find_ends(View(backend, trusting=True), end)
    size = _FIRST
    while True:
        page = in_hand(backend, end.target, partial(read, record.chain[-1].id, after, size))
        names = tuple([n.name for n in record.chain])
        path = format_path(names)
        if page is None or not page.end.live:
            raise EntityNotFound(path, f"{path} (id {record.chain[-1].id}) was dropped; restore it, or leave it out")
        if not isinstance(end.target, Entity) and tuple([n.name for n in page.end.chain]) != names:
            raise EntityNotFound(path, f"{path} was renamed while it was listed; list again")
        for row, far, doc in page.rows:
            if in_one_metalake(far, page.end):
                yield row, far, doc, page.end
        if len(page.rows) < size:
            return
        size, after = _PAGE, key(page.rows[-1][0])


# --- the entities at the ends: owners, members, roles, groups


def leads_to(session: ManagerSession, relation: Relation, end: EndOf, kind: str | None = None) -> list[Entity]:
    """Return the entities to which an entity is related, by name; ``kind``: only entities of this kind."""
    members = related_end(session.backend, relation, end)
    ids = [far.chain[-1].id for _, far in members.rows if in_one_metalake(members.end, far)]
    entities = [entity for entity in _loaded(session, ids) if kind in (None, entity.kind)]
    return sorted(entities, key=lambda entity: (entity.kind, entity.name))


def leading_to(
    session: ManagerSession, relation: Relation, end: EndOf, kinds: tuple[str, ...] = ()
) -> Iterator[Entity]:
    """Yield the entities that are related to an entity, by id; ``kinds``: only entities of these kinds."""
    ids: list[int] = []
    for row, target, _, _ in live_relating(session.backend, relation, end):
        if not kinds or target.chain[-1].kind in kinds:
            ids.append(row.from_id)
        if len(ids) == _MANY:
            yield from _loaded(session, ids)
            ids = []
    yield from _loaded(session, ids)


def _loaded(session: ManagerSession, ids: list[int]) -> Iterator[Entity]:
    origin = session.backend.origin
    for known in session.backend.by_id(ids) if ids else []:
        if known is not None and known.live:
            yield kind_named(known.record.chain[-1].kind).entity(known.record, origin)
