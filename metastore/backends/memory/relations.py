"""Relations in the reference model: each read walks over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metastore.backends.memory.tables import Tables
from metastore.backends.precondition import PreconditionFailed
from metastore.port.conditions import Relations
from metastore.port.records import Known
from metastore.port.relations import (
    NO_COLUMN,
    End,
    Related,
    Relating,
    RelationRecord,
    Sweep,
    end_of_known,
    incoming_order,
    outgoing_order,
)
from metastore.port.writes import Relate

Find = Callable[[int], Known | None]


def write(tables: Tables, relate: Relate, by: str | None, now: int, *, skip: bool) -> tuple[int, int] | None:
    """Write or remove a relation; return its id and version, or None if it exists already and is skipped."""
    key = relate.key
    old = tables.relations.get(key)
    if relate.version == 0:
        if old is not None:
            if skip:
                return None
            raise PreconditionFailed("name", old.id, old.version)
        new = RelationRecord(*key, tables.draw("id"), relate.to_id, 1, by, now, by, now)
        tables.relations[key] = new
        return new.id, 1
    if old is None or old.version != relate.version or relate.id not in (0, old.id):
        raise PreconditionFailed("self", old and old.id, old and old.version)
    if relate.removes:
        del tables.relations[key]
    else:
        changed = old._replace(to_id=relate.to_id, version=old.version + 1, modified_by=by, modified_at=now)
        tables.relations[key] = changed
    return old.id, old.version + 1


def members(tables: Tables, read: Relations) -> set[tuple[int, int]]:
    """Return the (id, version) of the relations at an entity, which a transaction has listed."""
    return {
        (row.id, row.version)
        for row in tables.relations.values()
        if (row.to_id if read.incoming else row.from_id) == read.id
        and row.kind == read.kind
        and read.slot in (None, row.slot)
    }


def _end(find: Find, entity_id: int) -> End:
    return end_of_known(find(entity_id))


def related(tables: Tables, find: Find, known: Known, kind: str, *, above: bool, doc: bool) -> Related:
    """Return the relations that go from an entity, and from those above it."""
    chain = known.record.chain
    froms = {node.id for node in (chain if above else chain[-1:])}
    rows = [row for row in tables.relations.values() if row.kind == kind and row.from_id in froms]
    return Related(
        end_of_known(known), known.record.doc if doc else None, [(row, _end(find, row.to_id)) for row in rows]
    )


def relating(
    tables: Tables, find: Find, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
) -> Relating | None:
    """Return a page of the relations that lead to an entity."""
    if find(to_id) is None:
        return None
    led = [r for r in tables.relations.values() if (r.to_id, r.kind) == (to_id, kind) and value in (None, r.value)]
    later = sorted((r for r in led if incoming_order(r) > after), key=incoming_order)[:limit]
    rows = []
    for row in later:
        known = find(row.from_id)
        doc = known.record.doc if known is not None and row.column_id != NO_COLUMN else None
        rows.append((row, _end(find, row.from_id), doc))
    return Relating(_end(find, to_id), rows)


def related_page(
    tables: Tables, find: Find, from_id: int, kind: str, after: tuple[int, int, str], limit: int
) -> Relating | None:
    """Return a page of the relations that go from an entity."""
    if find(from_id) is None:
        return None
    rows = sorted(
        r for r in tables.relations.values() if (r.from_id, r.kind) == (from_id, kind) and outgoing_order(r) > after
    )
    return Relating(_end(find, from_id), [(row, _end(find, row.to_id), None) for row in rows[:limit]])


def relations(tables: Tables, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
    """Return the relations in many slots."""
    wanted = set(slots)
    return [row for row in tables.relations.values() if row.kind == kind and (row.from_id, row.slot) in wanted]


def delete_relations(tables: Tables, ids: Sequence[int], limit: int) -> int:
    """Delete a batch of the relations of entities that are purging."""
    ends = set(ids)
    doomed = [key for key, row in tables.relations.items() if row.from_id in ends or row.to_id in ends][:limit]
    for key in doomed:
        del tables.relations[key]
    return len(doomed)


def sweep(tables: Tables, find: Find, after: int, limit: int) -> Sweep:
    """Look at the next relations by id; delete those that have lost an end."""
    rows = sorted((r for r in tables.relations.values() if r.id > after), key=lambda r: r.id)[:limit]
    missing = [row for row in rows if row.from_id not in tables.stands or row.to_id not in tables.stands]
    for row in missing:
        del tables.relations[row.key]
    columns = []
    for row in rows:
        known = find(row.from_id)
        if row.column_id != NO_COLUMN and row not in missing and known is not None:
            columns.append((row.id, row.from_id, row.column_id, known.record.doc))
    return Sweep(rows[-1].id if rows else None, len(missing), tuple(columns))


def delete_columns(tables: Tables, ids: Sequence[int]) -> None:
    """Delete relations of columns that were dropped."""
    for row in [row for row in tables.relations.values() if row.id in ids and row.column_id != NO_COLUMN]:
        del tables.relations[row.key]
