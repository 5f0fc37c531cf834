"""Announce a drop in steps: the commit hides the target, and writes the row of the drop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.drop import ANNOUNCED, DROP, drop_name
from metastore.kinds.handlers import handler_name
from metastore.kinds.kind import Kind, dump
from metastore.kinds.partition import PARTITION
from metastore.kinds.table.changes import DropColumn
from metastore.kinds.table.dropping import MARKER, BeginColumnDrop
from metastore.kinds.table.kind import TABLE
from metastore.managers.drops.parts import check_partition, rewritten
from metastore.managers.target import Target, check_standing, find
from metastore.names import Path, clean_name, format_path, parse_path
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.merge import altered
from metastore.operation.request import Proposal, Results, View
from metastore.port.conditions import DROPPING, ROOT_ID
from metastore.port.records import Node, OwnedRecord, Record
from metastore.port.writes import Event, Put, Update, Write


@dataclass(frozen=True)
class Begin:
    """The part of the target to drop in steps (a column, a partition; None: the whole), and the drop's ttl."""

    operation: UUID
    ttl: float
    column: Path | None = None
    partition: str | None = None
    actor: str | None = None
    """The principal that announces it."""


def announce(view: View, kind: Kind, target: Target, begin: Begin) -> Proposal[OwnedRecord]:
    """Propose to hide ``target``, or a part of it, and to note the drop."""
    record = find(view, kind, target)
    check_in_use(record.chain[:-1])
    if begin.column is not None:
        return _announce_column(kind, record, begin, parse_path(begin.column))
    if begin.partition is not None:
        return _announce_partition(view, record, begin, clean_name(begin.partition))
    node = record.chain[-1]
    event = Event(kind.name, "drop", record.path, None)
    write = Update(node.id, record.version, event, scope_version=node.scope_version, state=DROPPING)
    row = _new_row(begin, record, drop_name(node.id))
    return _proposal(record.chain[:-1], (write, row), begin.actor)


def _announce_column(kind: Kind, record: Record, begin: Begin, names: tuple[str, ...]) -> Proposal[OwnedRecord]:
    path = tuple([n.name for n in record.chain])
    change = BeginColumnDrop(format_path(names), str(begin.operation))
    if kind is not TABLE:
        raise InvalidArgument(f"{format_path(path)} is a {kind.name}; only columns of tables are dropped in steps")
    altered(record.doc, path, [DropColumn(format_path(names))])  # raises if the layout refers to the column
    write = rewritten(kind, record, change)
    (noted,) = [one for one in json.loads(write.doc or "{}")[MARKER] if one["operation"] == str(begin.operation)]
    name = drop_name(record.chain[-1].id, "column", noted["node"]["id"])
    row = _new_row(begin, record, name, part="column", part_name=noted["node"]["name"])
    return _proposal(record.chain[:-1], (write, row), begin.actor)


def _announce_partition(view: View, record: Record, begin: Begin, name: str) -> Proposal[OwnedRecord]:
    owner = record.chain[-1]
    (row,) = view.backend.owned_by_name([owner.id], PARTITION.name, [name])
    path = format_path((*[n.name for n in record.chain], name))
    if row is None:
        check_standing(view, record.chain)
        raise EntityNotFound(path, f"{path}: there is no such partition; see partitions.names()")
    check_partition(row, path)
    doc = dump({**json.loads(row.doc), MARKER: str(begin.operation)}, (name,))
    event = Event(PARTITION.name, "alter", path, path)
    write = Put(owner.id, PARTITION.name, name, row.version, doc, event, row.id)
    drop = _new_row(begin, record, drop_name(owner.id, "partition", row.id), part="partition", part_name=name)
    return _proposal(record.chain, (write, drop), begin.actor)


def _new_row(begin: Begin, record: Record, name: str, **part: str) -> Put:
    node = record.chain[-1]
    path = format_path([*[n.name for n in record.chain], *([part["part_name"]] if part else [])])
    fields: Mapping[str, Any] = {
        "phase": ANNOUNCED,
        "operation": str(begin.operation),
        "target_kind": node.kind,
        "target_path": path,
        "handler": handler_name(node.kind),
        "token": 1,
        "ttl": begin.ttl,
        **part,
    }
    doc = dump(DROP.document(None, {}, fields), (name,))
    return Put(ROOT_ID, DROP.name, name, 0, doc, Event(DROP.name, "create", None, format_path((name,))))


def _proposal(guarded: tuple[Node, ...], writes: tuple[Write, Put], actor: str | None) -> Proposal[OwnedRecord]:
    row = writes[1]

    def finish(results: Results) -> OwnedRecord:
        result = results[1]
        assert result is not None
        told = (actor, result.time, actor, result.time)
        return OwnedRecord(result.id, ROOT_ID, DROP.name, row.name, 1, row.doc, *told)

    return Proposal(guards_of(guarded), writes, finish)
