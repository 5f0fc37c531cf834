"""From the tables, in one snapshot, to the lines of an export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from metastore.backends.snapshot import Snapshot
from metastore.errors import InvalidArgument
from metastore.names import format_path
from metastore.transfer.lines import (
    AUDIT,
    OPERATION,
    Body,
    EntityLine,
    Header,
    OperationLine,
    OwnedLine,
    entity_row,
)
from metastore.transfer.tally import Tally
from metastore.transfer.walking import GuardRow, Visit, walk

__all__ = ["lines_of"]

_OWNED = ("owner_id", "kind", "name", "id", "version", "doc", *AUDIT)


def lines_of(snapshot: Snapshot, root: GuardRow | None, header: Header, kept: Tally) -> Iterator[Body]:
    """Yield the lines behind the header; of those that are kept only the last one, and what follows."""
    if not kept.operations:
        yield from _tree(snapshot, root, header, kept)
    if header.history:
        steps = snapshot.rows("operation", OPERATION, ("operation_id", "ordinal"))
        yield from (OperationLine(_step(row)) for n, row in enumerate(steps, 1) if n >= kept.operations)


def _tree(snapshot: Snapshot, root: GuardRow | None, header: Header, kept: Tally) -> Iterator[Body]:
    before = max(0, kept.entities - 1)
    drop = kept.owned_after
    for visits in walk(snapshot, root, gone=header.history):
        if before >= len(visits):
            before -= len(visits)
            continue
        for n, line in enumerate(_chunk(snapshot, visits[before:], header.ids)):
            if n >= drop:
                yield line
        before = drop = 0


def _chunk(snapshot: Snapshot, visits: list[Visit], ids: bool) -> Iterator[Body]:
    """Yield entities, by id, each with the rows that it owns."""
    wanted = [visit.row.id for visit in visits]
    entities = snapshot.rows("entity", ("id", "version", "doc", *AUDIT), ("id",), wanted)
    groups = groupby(snapshot.rows("owned", _OWNED, ("owner_id", "kind", "name"), wanted), itemgetter(0))
    owner, rows = next(groups, (None, iter(())))
    for visit in visits:
        found = next(entities, None)
        if found is None or found[0] != visit.row.id:
            path = format_path(visit.names)
            raise InvalidArgument(f"{path} (id {visit.row.id}) has no document; see: metastore verify")
        yield _entity(visit, found, ids)
        if owner == visit.row.id:
            yield from (_owned(row, visit, ids) for row in rows)
            owner, rows = next(groups, (None, iter(())))


def _entity(visit: Visit, found: tuple[Any, ...], ids: bool) -> EntityLine:
    row, (_, number, doc, *audit) = visit.row, found
    stands = (row.parent_id, row.key, bool(row.fold), row.state, row.scope_version)
    marks = (row.dropped_at, None if row.mark is None else str(row.mark), *row[-3:])
    return EntityLine(
        visit.names,
        visit.under,
        row.family,
        row.kind,
        bool(row.in_use),
        _document(doc, visit),
        dict(zip(AUDIT, audit, strict=True)),
        entity_row((row.id, number, *stands, *marks)) if ids else {},
    )


def _owned(row: tuple[Any, ...], visit: Visit, ids: bool) -> OwnedLine:
    _, kind, name, row_id, number, doc, *audit = row
    audited = dict(zip(AUDIT, audit, strict=True))
    return OwnedLine(kind, name, _document(doc, visit), audited, *((row_id, number) if ids else (None, None)))


def _document(text: str, visit: Visit) -> dict[str, Any]:
    try:
        doc = json.loads(text)
    except ValueError:
        doc = None
    if not isinstance(doc, dict):
        raise InvalidArgument(f"a document of {format_path(visit.names)} cannot be read; see: metastore verify")
    return doc


def _step(row: tuple[Any, ...]) -> tuple[Any, ...]:
    values = dict(zip(OPERATION, row, strict=True))
    values["operation_id"] = str(values["operation_id"])
    values["in_use"] = None if values["in_use"] is None else bool(values["in_use"])
    return tuple(values.values())
