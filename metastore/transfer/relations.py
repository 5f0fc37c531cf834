"""Relations in an export: their lines from a snapshot, and their import by path.

The lines of an entity's relations follow those of the rows that it owns. Each has the path of the other end in the
file. If that end is not in the file, or not live, only an export with history has a line for the relation, without the
path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from metastore.errors import EntityAlreadyExists, EntityNotFound
from metastore.kinds.registry import kind_named
from metastore.kinds.relation import relation_doc, relation_named
from metastore.managers.attempts.create import IfExists
from metastore.managers.relations.ends import EndOf, find_ends
from metastore.managers.relations.writes import column_id, column_paths, event_of
from metastore.operation.guards import both, check_in_use
from metastore.operation.perform import perform
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import Session
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.records import Node, Record
from metastore.port.relations import NO_COLUMN, ONLY, RelationKey, RelationRecord
from metastore.port.snapshot import TableSnapshot
from metastore.port.writes import Relate
from metastore.transfer.ends import End
from metastore.transfer.lines import AUDIT, Body, EntityLine, RelationLine
from metastore.transfer.plan import check_known
from metastore.transfer.walk import Visit

__all__ = ["import_relations", "relation_lines"]

_COLUMNS: Final = ("from_id", "kind", "slot", "column_id", "value", "id", "to_id", "version", *AUDIT)
_CHUNK: Final = 500


# --- export


class _Place(NamedTuple):
    parent_id: int
    kind: str
    name: str
    live: bool


def relation_lines(
    snapshot: TableSnapshot,
    top: int,
    root: int | None,
    visits: Sequence[Visit],
    docs: Mapping[int, str],
    damaged: Callable[[Collection[int]], set[int]],
    *,
    ids: bool,
    history: bool,
) -> Iterator[tuple[int, RelationLine]]:
    """Yield (from_id, line) for the relations from ``visits`` to entities of the file.

    ``root`` is the file's first entity; None: the file holds a whole database. ``top`` is its parent. ``damaged`` takes
    ids, and returns those of entities that are left out of the file.
    """
    froms = {visit.row.id: visit for visit in visits}
    rows = list(snapshot.rows("relation", _COLUMNS, _COLUMNS[:5], list(froms)))
    places = _places(snapshot, {row[6] for row in rows}, top)
    left_out = damaged(places.keys())
    # keeping one document is enough, because the rows are ordered by from_id
    paths = lru_cache(maxsize=1)(lambda from_id: column_paths(docs.get(from_id), None))
    for from_id, kind, slot, column, value, row_id, to_id, version, *audit in rows:
        way = _way(places, to_id, top)
        if way is None or not left_out.isdisjoint(way):
            continue
        names = _names(places, way, root)
        columns = None if column == NO_COLUMN else paths(from_id).get(column)
        lost = names is None or (column != NO_COLUMN and columns is None)
        if (top == ROOT_ID and names is not None and names[0] != froms[from_id].names[0]) or lost:
            names = None  # no reader of the export sees this end
        if names is None and not history:
            continue
        row = {"id": row_id, "version": version, "slot": slot, "column_id": column, "to_id": to_id} if ids else {}
        kind_of = None if names is None else places[to_id].kind
        yield from_id, RelationLine(kind, names, kind_of, columns, value, dict(zip(AUDIT, audit, strict=True)), row)


def _places(snapshot: TableSnapshot, ids: set[int], top: int) -> dict[int, _Place]:
    """Return the places of these entities and of all their ancestors."""
    places: dict[int, _Place] = {}
    wanted = ids
    while wanted:
        columns = ("id", "parent_id", "kind", "name", "state")
        for row_id, parent_id, kind, name, state in snapshot.rows("guard", columns, ("id",), sorted(wanted)):
            places[row_id] = _Place(parent_id, kind, name, state == LIVE)
        above = {places[row_id].parent_id for row_id in wanted if row_id in places}
        wanted = above - places.keys() - {ROOT_ID, top}
    return places


def _way(places: Mapping[int, _Place], entity_id: int, top: int) -> list[int] | None:
    """Return the ids from an entity up to the level below ``top``; None: they do not lead there, or form a circle."""
    way: list[int] = []
    while entity_id != top:
        if entity_id not in places or entity_id in way:
            return None
        way.append(entity_id)
        entity_id = places[entity_id].parent_id
    return way


def _names(places: Mapping[int, _Place], way: Sequence[int], root: int | None) -> tuple[str, ...] | None:
    """Return the names down to a live entity; None: it is not live, or neither ``root`` nor below it."""
    found = [places[one] for one in reversed(way)]
    shown = all(place.live for place in found) and root in (None, *way[-1:])
    return tuple([place.name for place in found]) if shown else None


# --- import


class _Wish(NamedTuple):
    number: int
    line: RelationLine
    target: EndOf
    other: EndOf


def import_relations(
    session: Session,
    lines: Iterable[tuple[int, Body]],
    above: Sequence[Node],
    families: Mapping[End, tuple[str, ...]],
    if_exists: IfExists,
    call: Call,
    only: Collection[int] | None = None,
) -> tuple[int, int]:
    """Write the relations of a file whose entities exist; return how many were written, and how many left unchanged.

    ``above``: the nodes above the paths of the file. ``families``: see :class:`metastore.transfer.ends.Ends`.
    ``only``: the ids that both ends may have; None: any ids. Raises EntityNotFound, EntityAlreadyExists.
    """
    wishes = _wishes(lines, above, families)
    written = left = 0
    while chunk := list(islice(wishes, _CHUNK)):
        new = _write(session, chunk, if_exists, call, only)
        written, left = written + new, left + len(chunk) - new
    return written, left


def _wishes(
    lines: Iterable[tuple[int, Body]], above: Sequence[Node], families: Mapping[End, tuple[str, ...]]
) -> Iterator[_Wish]:
    def end(names: tuple[str, ...], kind: str, under: tuple[str, ...]) -> EndOf:
        return EndOf((*top, *names), (kind,), under and (*tops, *under))

    top, tops = tuple([n.name for n in above]), tuple([kind_named(n.kind).family for n in above])
    owner: EntityLine | None = None
    for number, line in lines:
        if isinstance(line, EntityLine):
            owner = line
        if isinstance(line, RelationLine) and owner is not None and line.to is not None and line.to_kind is not None:
            target = end(owner.names, owner.kind, (*owner.under, owner.family))
            yield _Wish(number, line, target, end(line.to, line.to_kind, families.get((line.to_kind, line.to), ())))


def _write(session: Session, chunk: list[_Wish], if_exists: IfExists, call: Call, only: Collection[int] | None) -> int:
    def attempt(view: View) -> Proposal[int] | int:
        ends = find_ends(View(view.backend, False), *[end for wish in chunk for end in (wish.target, wish.other)])
        for end in ends:
            check_known(end.chain, only)
        pairs = list(zip(chunk, ends[::2], ends[1::2], strict=True))
        there = _there(view, pairs)
        writes = [w for wish, target, other in pairs if (w := _one(wish, target, other, there, if_exists)) is not None]
        if not writes:
            return 0
        touched = {w.from_id for w in writes}
        chains = [end.chain for _, *both_ends in pairs if both_ends[0].chain[-1].id in touched for end in both_ends]
        return Proposal(both(*chains), tuple(writes), len)

    request = Request[int](
        verb="import",
        what=lambda: f"import the relations from line {chunk[0].number} on",
        attempt=attempt,
        replay=len,
        arguments=tuple,
    )
    return perform(session, request, call)


def _there(view: View, pairs: list[tuple[_Wish, Record, Record]]) -> dict[RelationKey, RelationRecord]:
    slots: dict[str, list[tuple[int, int]]] = {}
    for wish, target, other in pairs:
        slot = ONLY if relation_named(wish.line.kind).exclusive else other.chain[-1].id
        slots.setdefault(wish.line.kind, []).append((target.chain[-1].id, slot))
    return {row.key: row for kind, some in slots.items() for row in view.backend.relations(kind, some)}


def _one(
    wish: _Wish,
    target: Record,
    other: Record,
    there: Mapping[RelationKey, RelationRecord],
    if_exists: IfExists,
) -> Relate | None:
    line, from_id, to_id = wish.line, target.chain[-1].id, other.chain[-1].id
    relation = relation_named(line.kind)
    try:
        column = column_id(target, line.column)
    except EntityNotFound:
        if if_exists == "return":  # the table exists without this column
            return None
        raise
    slot = ONLY if relation.exclusive else to_id
    row = there.get(RelationKey(from_id, line.kind, slot, column, line.value))
    if row is not None and (row.to_id == to_id or if_exists == "return"):
        return None
    if row is not None and if_exists == "error":
        path = target.path
        raise EntityAlreadyExists(path, f"line {wish.number}: {path} has another {line.kind} than in the file")
    check_in_use(target.chain[:-1])
    event = event_of(relation, "create" if row is None else "alter", target.path, other.path)
    doc = relation_doc(to_id, column, line.value)
    version, row_id = (0, 0) if row is None else (row.version, row.id)
    return Relate(from_id, line.kind, slot, column, line.value, to_id, version, doc, event, row_id)
