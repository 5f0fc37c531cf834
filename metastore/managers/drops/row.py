"""The row of a drop in steps: list the pending drops, and compare and swap one drop's row.

Each step compares and swaps this row, and expects the version, operation and token that it read. It compares the
operation too, because the next drop of the same target begins with token 1 again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from metastore.errors import DropPending, UnreadableRow
from metastore.kinds.drop import DESTROYED, DROP, Drop, drop_name, target_id
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, dump
from metastore.managers.target import Target
from metastore.names import format_path
from metastore.operation.guards import guards_of
from metastore.operation.request import Proposal, Results, the_result
from metastore.port.backend import Reads
from metastore.port.conditions import ROOT_ID
from metastore.port.records import OwnedRecord, all_pages, path_of
from metastore.port.writes import Delete, Event, Put

_PAGE = 500


def read_drop(backend: Reads, name: str) -> Drop | None:
    """Return the row of a drop; None: it was finished or rolled back."""
    (row,) = backend.owned_by_name([ROOT_ID], DROP.name, [name])
    return None if row is None else Drop(row)


def read_same(backend: Reads, known: Drop) -> Drop | None:
    """Return the present row of a drop; None: it has ended, even if another drop of the same target is pending."""
    drop = read_drop(backend, known.name)
    return drop if drop is not None and drop.operation == known.operation else None


def pending_drops(backend: Reads) -> Iterator[Drop]:
    """Yield the rows of all drops in steps, page by page."""
    rows = all_pages(lambda last: backend.owned(ROOT_ID, DROP.name, last, _PAGE, ()).rows, "", lambda r: r.name, _PAGE)
    return map(Drop, rows)


def is_destroyed(drop: Drop) -> bool:
    """Whether only the metadata is left. A row that cannot be read counts as pending: gc leaves its target alone."""
    try:
        return drop.phase == DESTROYED
    except UnreadableRow:
        return False


def above_pending(backend: Reads) -> set[int]:
    """Return the ids of all entities that are being dropped in steps, in whole or in part, and of their ancestors."""
    ids = [target_id(drop.name) for drop in pending_drops(backend) if not is_destroyed(drop)]
    known = backend.by_id(list(dict.fromkeys(ids))) if ids else []
    return {node.id for one in known if one is not None for node in one.record.chain}


def pending_in(backend: Reads, parent_id: int) -> str | None:
    """Return the path of the first child that is being dropped in steps, hidden in listings; None: no such child."""
    ids = [target_id(drop.name) for drop in pending_drops(backend) if drop.part is None]
    chains = [known.record.chain for known in (backend.by_id(ids) if ids else []) if known is not None]
    found = next((chain for chain in chains if len(chain) > 1 and chain[-2].id == parent_id), None)
    return None if found is None else path_of(found)


def pending_within(backend: Reads, kind: Kind, entity_id: int) -> bool:
    """Whether something below an entity, or a part of it, is being dropped in steps.

    For a table one row is enough: it has no entities below it, and the rows of its parts come right after its own. So
    ending a thousand drops does not read a thousand rows each time.
    """
    if kind.container:
        return entity_id in above_pending(backend)
    rows = backend.owned(ROOT_ID, DROP.name, drop_name(entity_id), 1, ()).rows
    return bool(rows) and target_id(rows[0].name) == entity_id


def check_no_pending(backend: Reads, target: Target) -> None:
    """Raise DropPending if a loaded entity, or something below it, is being dropped in steps and not destroyed yet.

    A path needs no check: it leads to a live entity, whose purge is refused while anything is below it.
    """
    if not isinstance(target, Entity):
        return
    for drop in pending_drops(backend):
        (known,) = backend.by_id([target_id(drop.name)])
        if drop.phase != DESTROYED and known is not None and target.id in [n.id for n in known.record.chain]:
            raise DropPending(UUID(drop.operation), path=drop.target_path)


def swapped(drop: Drop, **fields: Any) -> Proposal[OwnedRecord]:
    """Propose the next version of the row, with ``fields`` replaced."""
    doc = dump({**json.loads(drop.record.doc), **fields}, (drop.name,))
    path = format_path((drop.name,))
    write = Put(ROOT_ID, DROP.name, drop.name, drop.version, doc, Event(DROP.name, "alter", path, path), drop.id)

    def finish(results: Results) -> OwnedRecord:
        result = the_result(results)
        return drop.record._replace(version=result.version, doc=doc, modified_at=result.time)

    return Proposal(guards_of(()), (write,), finish)


def gone(drop: Drop) -> Delete:
    """Return the write that deletes the row: the drop has ended."""
    event = Event(DROP.name, "drop", format_path((drop.name,)), None)
    return Delete(ROOT_ID, DROP.name, drop.name, drop.version, event, drop.id)
