"""The targets of drops in steps (an entity, a column, a partition): how a drop restores its target, or removes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from metastore.errors import DropPending
from metastore.kinds.change import EntityChange
from metastore.kinds.drop import Drop, target_id
from metastore.kinds.kind import Kind, dump, dump_changes
from metastore.kinds.partition import PARTITION
from metastore.kinds.registry import kind_named
from metastore.kinds.table.dropping import MARKER, FinishColumnDrop, FinishPartitionDrop, RollBackColumnDrop
from metastore.names import format_path
from metastore.operation.guards import key_under
from metastore.operation.merge import altered
from metastore.port.backend import Reads
from metastore.port.conditions import LIVE, PURGING
from metastore.port.past import PastRow
from metastore.port.records import ROOT, OwnedRecord, Record
from metastore.port.unreadable import naming
from metastore.port.writes import Delete, Event, Place, Put, Update, Write


class Part(Protocol):
    """How the drop of a target ends. ``record`` is the target, or the entity that the target is part of."""

    def brought_back(self, backend: Reads, drop: Drop, record: Record) -> Sequence[Write]:
        """Return the writes that bring the target back."""

    def let_go(self, backend: Reads, drop: Drop, record: Record) -> Sequence[Write]:
        """Return the writes that remove the target for good."""

    def is_there(self, backend: Reads, drop: Drop, record: Record) -> bool:
        """Whether the target is part of the entity; also True while another drop hides it again."""


class _Whole:
    """The entity itself."""

    def brought_back(self, _backend: Reads, _drop: Drop, record: Record) -> Sequence[Write]:
        node, above = record.chain[-1], record.chain[-2] if len(record.chain) > 1 else ROOT
        place = Place(above.id, node.name, key_under(above, node.name), node.fold)
        return [self._stands(record, "restore", LIVE, None, record.path, place)]

    def let_go(self, _backend: Reads, _drop: Drop, record: Record) -> Sequence[Write]:
        return [self._stands(record, "purge", PURGING, record.path, None)]

    def is_there(self, _backend: Reads, _drop: Drop, _record: Record) -> bool:
        return True

    def _stands(
        self, record: Record, action: str, state: int, before: str | None, after: str | None, place: Place | None = None
    ) -> Update:
        node = record.chain[-1]
        event = Event(node.kind, action, before, after)
        return Update(node.id, record.version, event, scope_version=node.scope_version, place=place, state=state)


class _Column:
    """A column of a table: its marker is in the table's document."""

    def brought_back(self, _backend: Reads, drop: Drop, record: Record) -> Sequence[Write]:
        return [self._rewritten(RollBackColumnDrop, drop, record)]

    def let_go(self, _backend: Reads, drop: Drop, record: Record) -> Sequence[Write]:
        return [self._rewritten(FinishColumnDrop, drop, record)]

    def is_there(self, _backend: Reads, drop: Drop, record: Record) -> bool:
        doc = json.loads(record.doc)
        nodes = [*doc.get("columns", ()), *[one["node"] for one in doc.get(MARKER, ())]]
        return any(node["id"] == _part_id(drop) for node in nodes)

    def _rewritten(self, change: type[RollBackColumnDrop | FinishColumnDrop], drop: Drop, record: Record) -> Update:
        path = format_path((drop.part_name or "",))
        return rewritten(kind_named(drop.target_kind), record, change(path, _part_id(drop)))


class _Partition:
    """A partition of a table: its marker is in its own row."""

    def brought_back(self, backend: Reads, drop: Drop, record: Record) -> Sequence[Write]:
        row = self._row(backend, drop)
        if row is None:
            return []
        path = self._path(drop, record)
        doc = {key: value for key, value in json.loads(row.doc).items() if key != MARKER}
        event = Event(PARTITION.name, "alter", path, path)
        return [Put(row.owner_id, PARTITION.name, row.name, row.version, dump(doc, (row.name,)), event, row.id)]

    def let_go(self, backend: Reads, drop: Drop, record: Record) -> Sequence[Write]:
        row = self._row(backend, drop)
        if row is None:
            return []
        changes = dump_changes((FinishPartitionDrop(),), (row.name,))
        event = Event(PARTITION.name, "purge", self._path(drop, record), None, changes)
        return [Delete(row.owner_id, PARTITION.name, row.name, row.version, event, row.id)]

    def is_there(self, backend: Reads, drop: Drop, _record: Record) -> bool:
        return self._row(backend, drop) is not None

    def _row(self, backend: Reads, drop: Drop) -> OwnedRecord | None:
        """Return the partition's row; None: the partition is gone, or another one has its name."""
        (row,) = backend.owned_by_name([target_id(drop.name)], PARTITION.name, [drop.part_name or ""])
        return row if row is not None and row.id == _part_id(drop) else None

    def _path(self, drop: Drop, record: Record) -> str:
        return format_path((*[n.name for n in record.chain], drop.part_name or ""))


_PARTS: dict[str | None, Part] = {None: _Whole(), "column": _Column(), "partition": _Partition()}


def part_of(drop: Drop) -> Part:
    """Return the sort of target of a drop."""
    return _PARTS[drop.part]


def marked_by(row: OwnedRecord | PastRow) -> UUID | None:
    """Return the operation that is dropping a partition in steps; None: the partition is not being dropped."""
    # a text search is fast, and most rows have no marker; SQLite returns text that is not UTF-8 as bytes
    if not isinstance(row.doc, str) or f'"{MARKER}"' not in row.doc:
        return None
    return naming(partial(_noted, row.doc), row.kind, row.id, row.version)


def _noted(doc: str) -> UUID | None:
    operation = json.loads(doc).get(MARKER)
    return None if operation is None else UUID(operation)


def check_partition(row: OwnedRecord, path: str) -> None:
    """Raise DropPending for a partition that is being dropped in steps."""
    operation = marked_by(row)
    if operation is not None:
        raise DropPending(operation, path=path)


def rewritten(kind: Kind, record: Record, change: EntityChange) -> Update:
    """Return the write of a table's document after ``change``, which must change it."""
    names = tuple([n.name for n in record.chain])
    text = altered(record.doc, names, [change], kind.check_doc) or record.doc
    event = Event(kind.name, "alter", format_path(names), format_path(names), dump_changes((change,), names))
    return Update(record.chain[-1].id, record.version, event, doc=text)


def _part_id(drop: Drop) -> int:
    return int(drop.name.rsplit("/", 1)[1])
