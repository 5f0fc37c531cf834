"""Attempts of a drop in steps: announce, start, take over, roll back, finish.

The row of the drop (:mod:`metastore.kinds.drop`) is the one thing that all steps compare and swap: each expects the
version of the row that it read, with its own operation and token in it. So of a start and a roll-back, or of two
finishes, exactly one commits. The operation counts as well, because the tokens of the next drop of the same target
begin again. The commit that announces takes the target out of sight; the one that ends the drop decides about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from metastore.errors import DropPending, EntityNotFound, InvalidArgument
from metastore.kinds.change import EntityChange
from metastore.kinds.drop import ANNOUNCED, DESTROYED, DROP, STARTED, Drop, drop_name, target_id
from metastore.kinds.entity import Entity
from metastore.kinds.handlers import handler_name
from metastore.kinds.kind import Kind, dump, dump_changes
from metastore.kinds.partition import PARTITION
from metastore.kinds.registry import kind_named
from metastore.kinds.table.changes import DropColumn
from metastore.kinds.table.dropping import (
    MARKER,
    BeginColumnDrop,
    FinishColumnDrop,
    FinishPartitionDrop,
    RollBackColumnDrop,
)
from metastore.kinds.table.kind import TABLE
from metastore.managers.target import Target, check_standing, find
from metastore.names import Path, clean_name, format_path, parse_path
from metastore.operation.dropping import pending_above
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.merge import altered
from metastore.operation.request import Proposal, Results, View
from metastore.port.backend import MOST_AHEAD, Reads
from metastore.port.commit import (
    DROPPING,
    LIVE,
    PURGING,
    ROOT_ID,
    Delete,
    Event,
    Put,
    Update,
    Write,
)
from metastore.port.records import Known, Node, OwnedRecord, Record

__all__ = [
    "Begin",
    "above_pending",
    "announce",
    "check_no_pending",
    "check_partition",
    "finish",
    "is_back",
    "lost",
    "marked_by",
    "pending_drops",
    "pending_in",
    "pending_within",
    "read_drop",
    "read_same",
    "roll_back",
    "start",
    "take_over",
]

_PAGE = 500


@dataclass(frozen=True)
class Begin:
    """What is to be dropped in steps, besides the target: a column or a partition of it; and for how long."""

    operation: UUID
    ttl: float
    column: Path | None = None
    partition: str | None = None
    actor: str | None = None
    """Who announces it."""


# --- announcing


def announce(view: View, kind: Kind, target: Target, begin: Begin) -> Proposal[OwnedRecord]:
    """Propose to take ``target``, or a part of it, out of sight, and to note the drop."""
    record = find(view, kind, target)
    check_in_use(record.chain[:-1])
    if begin.column is not None:
        return _announce_column(kind, record, begin, parse_path(begin.column))
    if begin.partition is not None:
        return _announce_partition(view, record, begin, clean_name(begin.partition))
    node = record.chain[-1]
    event = Event(kind.name, "drop", _path(record.chain), None)
    write = Update(node.id, record.version, event, scope_version=node.scope_version, state=DROPPING)
    row = _new_row(begin, record, drop_name(node.id))
    return _proposal(record.chain[:-1], (write, row), begin.actor)


def _announce_column(kind: Kind, record: Record, begin: Begin, names: tuple[str, ...]) -> Proposal[OwnedRecord]:
    path = tuple([n.name for n in record.chain])
    change = BeginColumnDrop(format_path(names), str(begin.operation))
    if kind is not TABLE:
        raise InvalidArgument(f"{format_path(path)} is a {kind.name}; only columns of tables are dropped in steps")
    altered(record.doc, path, [DropColumn(format_path(names))])  # what refers to the column is in the way
    write = _rewritten(kind, record, change)
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
        raise EntityNotFound(path, f"{path}: there is no such partition")
    check_partition(row, path)
    doc = dump({**json.loads(row.doc), MARKER: str(begin.operation)}, (name,))
    event = Event(PARTITION.name, "alter", path, path)
    write = Put(owner.id, PARTITION.name, name, row.version, doc, event, row.id)
    drop = _new_row(begin, record, drop_name(owner.id, "partition", row.id), part="partition", part_name=name)
    return _proposal(record.chain, (write, drop), begin.actor)


def marked_by(row: OwnedRecord) -> UUID | None:
    """Return the operation that is dropping a partition in steps; None: it is there."""
    # the text says so at once, for all but a few; SQLite gives bytes that are not UTF-8 as they are
    if not isinstance(row.doc, str) or f'"{MARKER}"' not in row.doc:
        return None
    operation = json.loads(row.doc).get(MARKER)
    return None if operation is None else UUID(operation)


def check_partition(row: OwnedRecord, path: str) -> None:
    """Raise DropPending for a partition that is being dropped in steps."""
    operation = marked_by(row)
    if operation is not None:
        raise DropPending(operation, path=path)


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


# --- the row


def read_drop(backend: Reads, name: str) -> Drop | None:
    """Return the row of a drop; None: it was finished or rolled back."""
    (row,) = backend.owned_by_name([ROOT_ID], DROP.name, [name])
    return None if row is None else Drop(row)


def pending_drops(backend: Reads) -> Iterator[Drop]:
    """Yield the rows of all drops in steps, page by page."""
    last = ""
    while True:
        rows = backend.owned(ROOT_ID, DROP.name, last, _PAGE, ()).rows
        yield from map(Drop, rows)
        if len(rows) < _PAGE:
            return
        last = rows[-1].name


def above_pending(backend: Reads) -> set[int]:
    """Return the ids of everything that is being dropped in steps, in whole or in part, and of what is above it."""
    ids = [target_id(drop.name) for drop in pending_drops(backend) if drop.phase != DESTROYED]
    known = backend.by_id(list(dict.fromkeys(ids))) if ids else []
    return {node.id for one in known if one is not None for node in one.record.chain}


def pending_within(backend: Reads, kind: Kind, entity_id: int) -> bool:
    """Whether something below an entity, or a part of it, is being dropped in steps.

    A table has nothing below it, and the rows of its parts come right after its own: one row says it. Else the end of
    each of a thousand drops would read a thousand rows.
    """
    if kind.container:
        return entity_id in above_pending(backend)
    rows = backend.owned(ROOT_ID, DROP.name, drop_name(entity_id), 1, ()).rows
    return bool(rows) and target_id(rows[0].name) == entity_id


def check_no_pending(backend: Reads, target: Target) -> None:
    """Raise DropPending for an entity in hand, if it or something below it is being dropped in steps.

    A path leads to what is live: the purge of that is refused while anything is below it.
    """
    if not isinstance(target, Entity):
        return
    for drop in pending_drops(backend):
        (known,) = backend.by_id([target_id(drop.name)])
        if drop.phase != DESTROYED and known is not None and target.id in [n.id for n in known.record.chain]:
            raise DropPending(UUID(drop.operation), path=drop.target_path)


def pending_in(backend: Reads, parent_id: int) -> str | None:
    """Return the path of the first child that is being dropped in steps; None: there is none. Listings leave it out."""
    ids = [target_id(drop.name) for drop in pending_drops(backend) if drop.part is None]
    chains = [known.record.chain for known in (backend.by_id(ids) if ids else []) if known is not None]
    return next((_path(chain) for chain in chains if len(chain) > 1 and chain[-2].id == parent_id), None)


def read_same(backend: Reads, known: Drop) -> Drop | None:
    """Return the row of a drop as it is now; None: it has ended, even if the target is being dropped again."""
    drop = read_drop(backend, known.name)
    return drop if drop is not None and drop.operation == known.operation else None


def _mine(view: View, known: Drop) -> Drop | None:
    """Return the row of a drop, which must have the ``known`` token; None: it has ended. Raises DropPending."""
    drop = read_same(view.backend, known)
    if drop is not None and drop.token != known.token:
        raise DropPending(
            UUID(drop.operation),
            f"another process has taken over the drop of {drop.target_path} (token {drop.token}, not {known.token}); "
            "stop destroying, and leave it to that process",
            path=drop.target_path,
        )
    return drop


def lost(path: str) -> EntityNotFound:
    """The error for a step of a drop that has ended."""
    return EntityNotFound(path, f"the drop of {path} was finished or rolled back; load the path to see what is there")


def _put(drop: Drop, **fields: Any) -> Put:
    doc = dump({**json.loads(drop.record.doc), **fields}, (drop.name,))
    path = format_path((drop.name,))
    return Put(ROOT_ID, DROP.name, drop.name, drop.version, doc, Event(DROP.name, "alter", path, path), drop.id)


def _swapped(drop: Drop, **fields: Any) -> Proposal[OwnedRecord]:
    write = _put(drop, **fields)

    def finish(results: Results) -> OwnedRecord:
        (result,) = results
        assert result is not None
        return drop.record._replace(version=result.version, doc=write.doc, modified_at=result.time)

    return Proposal(guards_of(()), (write,), finish)


def start(view: View, known: Drop) -> Proposal[OwnedRecord]:
    """Propose to note that destruction begins; again, to keep the drop for another ttl."""
    drop = _mine(view, known)
    if drop is None:
        raise lost(known.target_path)
    return _swapped(drop, phase=drop.phase if drop.phase == DESTROYED else STARTED)


def take_over(view: View, known: Drop, now: int, *, to_roll_back: bool = False) -> Proposal[OwnedRecord]:
    """Propose the next token, once the ttl has passed. Raises DropPending before that.

    Also raises it ``to_roll_back`` what has started: the process that destroys it keeps its token.
    """
    drop = read_same(view.backend, known)
    if drop is None:
        raise lost(known.target_path)
    if to_roll_back:
        _check_not_started(drop)
    touched = drop.record.modified_at
    left = (touched - now) / 1e6 + drop.ttl
    if left > 0 and touched <= now + MOST_AHEAD:  # else the clock was set back since then
        who = drop.modified_by or "another process"
        raise DropPending(
            UUID(drop.operation),
            f"{who} has the drop of {drop.target_path} in hand for another {left:.1f} s; take it over after that",
            path=drop.target_path,
        )
    return _swapped(drop, token=drop.token + 1)


def is_back(backend: Reads, drop: Drop) -> bool:
    """Whether a drop that has ended was rolled back, not finished; its target may be dropped again since."""
    known = _target(backend, drop)
    if known is None or drop.part is None:
        return known is not None and known.state != PURGING
    if drop.part == "partition":
        return not known.doomed and _partition(backend, drop, drop.target_path)[0] is not None
    doc = json.loads(known.record.doc)
    nodes = [*doc.get("columns", ()), *[one["node"] for one in doc.get(MARKER, ())]]
    return not known.doomed and any(node["id"] == _part_id(drop) for node in nodes)


# --- the two ends


def roll_back(view: View, known: Drop) -> Proposal[bool]:
    """Propose to bring the target back. Raises DropPending once destruction has begun."""
    drop = _mine(view, known)
    if drop is None:
        raise lost(known.target_path)
    _check_not_started(drop)
    target = _target(view.backend, drop)
    _check_above(view.backend, drop, target)
    assert target is not None
    return _ending(target.record.chain, (*_back(view.backend, drop, target.record), _gone(drop)))


def _check_not_started(drop: Drop) -> None:
    if drop.phase != ANNOUNCED:
        message = f"the destruction of {drop.target_path} has begun: it can only be finished; see store.drops.resume()"
        raise DropPending(UUID(drop.operation), message, path=drop.target_path)


def finish(view: View, known: Drop) -> Proposal[bool] | bool:
    """Propose to let go of the target for good; False: the drop has ended.

    A part of what is not live is noted as destroyed: it goes when its table is live again, or with it.
    """
    drop = _mine(view, known)
    if drop is None:
        return False
    target = _target(view.backend, drop)
    if target is None or (drop.part is not None and target.doomed):
        return _ending((), (_gone(drop),))
    if drop.part is not None and not target.live:
        if drop.phase == DESTROYED:
            return True
        proposal = _swapped(drop, phase=DESTROYED)
        return Proposal(guards_of(target.record.chain), proposal.writes, lambda _: True)
    return _ending(target.record.chain, (*_forgotten(view.backend, drop, target.record), _gone(drop)))


def _target(backend: Reads, drop: Drop) -> Known | None:
    """Return the entity, wherever it stands by now; its path is what events say."""
    return backend.by_id([target_id(drop.name)])[0]


def _check_above(backend: Reads, drop: Drop, known: Known | None) -> None:
    """Raise EntityNotFound or DropPending if what the target would come back to is not live."""
    path = drop.target_path
    if known is not None and drop.part is None:
        above = known.record.chain[:-1]
        known = backend.by_id([above[-1].id])[0] if above else None
        if not above:
            return
    if known is None or known.doomed:
        raise EntityNotFound(path, f"{path} cannot come back: what it was in was purged; finish its drop")
    if not known.live:
        message = f"{path} cannot come back: what it was in was dropped; restore that first, or finish its drop"
        raise pending_above(backend, known.record.chain) or EntityNotFound(path, message)


def _ending(chain: tuple[Node, ...], writes: tuple[Write, ...]) -> Proposal[bool]:
    return Proposal(guards_of(chain[:-1]), writes, lambda _: True)


def _gone(drop: Drop) -> Delete:
    event = Event(DROP.name, "drop", format_path((drop.name,)), None)
    return Delete(ROOT_ID, DROP.name, drop.name, drop.version, event, drop.id)


def _back(backend: Reads, drop: Drop, record: Record) -> tuple[Write, ...]:
    if drop.part == "column":
        change = RollBackColumnDrop(format_path((drop.part_name or "",)), _part_id(drop))
        return (_rewritten(kind_named(drop.target_kind), record, change),)
    path = _path(record.chain)
    if drop.part == "partition":
        row, where = _partition(backend, drop, path)
        if row is None:
            return ()
        doc = {key: value for key, value in json.loads(row.doc).items() if key != MARKER}
        event = Event(PARTITION.name, "alter", where, where)
        return (Put(row.owner_id, PARTITION.name, row.name, row.version, dump(doc, (row.name,)), event, row.id),)
    return (_stand(record, "restore", LIVE, None, path),)


def _forgotten(backend: Reads, drop: Drop, record: Record) -> tuple[Write, ...]:
    if drop.part == "column":
        change = FinishColumnDrop(format_path((drop.part_name or "",)), _part_id(drop))
        return (_rewritten(kind_named(drop.target_kind), record, change),)
    path = _path(record.chain)
    if drop.part == "partition":
        row, where = _partition(backend, drop, path)
        if row is None:
            return ()
        event = Event(PARTITION.name, "purge", where, None, dump_changes((FinishPartitionDrop(),), (row.name,)))
        return (Delete(row.owner_id, PARTITION.name, row.name, row.version, event, row.id),)
    return (_stand(record, "purge", PURGING, path, None),)


def _stand(record: Record, action: str, state: int, before: str | None, after: str | None) -> Update:
    node = record.chain[-1]
    event = Event(node.kind, action, before, after)
    return Update(node.id, record.version, event, scope_version=node.scope_version, state=state)


def _partition(backend: Reads, drop: Drop, path: str) -> tuple[OwnedRecord | None, str]:
    name = drop.part_name or ""
    (row,) = backend.owned_by_name([target_id(drop.name)], PARTITION.name, [name])
    mine = row is not None and row.id == _part_id(drop)
    return (row if mine else None), format_path((*parse_path(path), name))


def _part_id(drop: Drop) -> int:
    return int(drop.name.rsplit("/", 1)[1])


def _rewritten(kind: Kind, record: Record, change: EntityChange) -> Update:
    """Return the write of a table's document after ``change``, which always changes it."""
    names = tuple([n.name for n in record.chain])
    text = altered(record.doc, names, [change], kind.check_doc) or record.doc
    event = Event(kind.name, "alter", format_path(names), format_path(names), dump_changes((change,), names))
    return Update(record.chain[-1].id, record.version, event, doc=text)


def _path(chain: tuple[Node, ...]) -> str:
    return format_path([n.name for n in chain])
