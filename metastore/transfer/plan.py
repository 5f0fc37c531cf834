"""Decide the writes of one commit, from a chunk of lines and the existing entities and rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from metastore.errors import EntityAlreadyExists, InvalidArgument
from metastore.kinds.kind import to_json
from metastore.kinds.model.version import MODEL_VERSION
from metastore.kinds.origin import ORIGIN
from metastore.kinds.secret import SEALED, kept_from_file
from metastore.managers.attempts.create import IfExists
from metastore.managers.drops.parts import check_partition
from metastore.managers.target import root_or_last
from metastore.names import format_path
from metastore.operation.guards import check_in_use, guards_of, key_under
from metastore.operation.helping import own_guards
from metastore.operation.replace import below
from metastore.port.conditions import Guard
from metastore.port.records import Node, OwnedRecord, Record
from metastore.port.unreadable import document, properties_of
from metastore.port.writes import Delete, Event, Insert, Put, Update, Write
from metastore.transfer.chunks import Group
from metastore.transfer.lines import EntityLine
from metastore.transfer.replace import counted, replaced, with_aliases

__all__ = ["ChunkWrites", "Follow", "Standing", "check_known", "plan"]

Nodes = tuple[Node, ...]


class Follow(NamedTuple):
    """The state of this store when the file of another system was made.

    People may have changed the store since then.
    """

    only: set[int]
    """The ids of the entities that may be written to. The import adds those that it creates."""
    columns: dict[int, int]
    """By table: its last column id at that time. The columns in the file have the ids of this table."""


class Standing(NamedTuple):
    """The existing part of a group: the nodes above it, its record, and the existing row for each owned line."""

    parents: Nodes
    own: Nodes | None
    """The nodes down to the entity; None: it does not exist."""
    record: Record | None
    owned: Sequence[OwnedRecord | None]
    stale: Collection[int] = ()
    """The ids of rows that no reader sees: statistics of partitions that were dropped."""

    @classmethod
    def nothing(cls, group: Group, parents: Nodes, own: Nodes | None) -> Standing:
        """Return the standing of a group if only ``own`` exists, and none of its owned rows."""
        return cls(parents, own, None, [None] * len(group.owned))


@dataclass
class ChunkWrites:
    """The writes of a chunk, their guards, and the places of the entities after the commit."""

    guards: dict[int, Guard] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    chains: list[Nodes] = field(default_factory=list)
    """The nodes down to the entity of each group."""
    left: int = 0
    enable: list[Node] = field(default_factory=list)
    disable: list[Node] = field(default_factory=list)

    def guard(self, guards: Sequence[Guard]) -> None:
        """Add guards. If an entity has two, keep the older one, so that the commit fails if the two reads differ."""
        for guard in guards:
            there = self.guards.setdefault(guard.id, guard)
            if guard.scope_version < there.scope_version:
                self.guards[guard.id] = guard


def plan(
    groups: Sequence[Group],
    standing: Sequence[Standing],
    ids: Iterator[int],
    if_exists: IfExists,
    follow: Follow | None,
    keeps_origin: Callable[[Group, Standing], bool],
) -> ChunkWrites:
    """Return the writes. ``keeps_origin``: whether an entity gets the origin in the file.

    Raises EntityAlreadyExists if an entity differs, or ``follow`` does not know it; InvalidArgument if one comes twice.
    """
    made = ChunkWrites()
    taken = set[tuple[int, str, str]]()
    for group, there in zip(groups, standing, strict=True):
        if group.fresh:
            _take(group, there.parents, taken)
        if there.own is None:
            chain = _insert(made, group, there, next(ids))
        else:
            chain = there.own
            check_known(chain, follow and follow.only)
            if group.fresh and there.record is not None:
                chain = _meet(made, group, there.record, if_exists, follow)
        made.chains.append(chain)
        if group.owned:
            own = (group, there) if keeps_origin(group, there) else _without_origin(made, group, there)
            _own(made, *own, chain, if_exists, _placed(group, there.record, if_exists, follow))
    return made


def _without_origin(made: ChunkWrites, group: Group, there: Standing) -> tuple[Group, Standing]:
    """Leave out the row with the origin of an entity."""
    kept = [n for n, (_, line, _) in enumerate(group.owned) if line.kind != ORIGIN.name]
    made.left += len(group.owned) - len(kept)
    owned = [group.owned[n] for n in kept]
    return replace(group, owned=owned), there._replace(owned=[there.owned[n] for n in kept])


def check_known(chain: Nodes, only: Collection[int] | None) -> None:
    """Raise EntityAlreadyExists if ``only`` lacks an entity: another call created it after the import read ``only``."""
    if only is not None and chain[-1].id not in only:
        path = format_path([node.name for node in chain])
        raise EntityAlreadyExists(
            path, f"another call created {path} while the import ran; import again, which skips it"
        )


def _take(group: Group, parents: Nodes, taken: set[tuple[int, str, str]]) -> None:
    """Note the place of a group, occupied or not: two groups must not write to one entity."""
    parent, name = root_or_last(parents), group.line.names[-1]
    place = (parent.id, group.line.family, key_under(parent, name))
    if place in taken:
        path = format_path((*[n.name for n in parents], name))
        raise InvalidArgument(
            f"line {group.number}: the file has {path} twice: the catalog treats the two names as equal"
        )
    taken.add(place)


def _insert(made: ChunkWrites, group: Group, there: Standing, new: int) -> Nodes:
    line, parent = group.line, root_or_last(there.parents)
    check_in_use(there.parents)
    names = (*[n.name for n in there.parents], line.names[-1])
    path, key = format_path(names), key_under(parent, names[-1])
    folds = bool(line.doc.get("fold_case")) if line.kind == "catalog" else parent.fold
    event = Event(line.kind, "create", None, path)
    made.writes.append(Insert(parent.id, line.kind, line.family, names[-1], key, folds, group.doc, event, new))
    made.guard(guards_of(there.parents))
    own = Node(new, line.kind, names[-1], 1, True, folds)
    if not line.in_use:
        made.disable.append(own)
    return (*there.parents, own)


def _placed(group: Group, record: Record | None, if_exists: IfExists, follow: Follow | None) -> Mapping[str, Any]:
    """Return the document of a group's entity after the commit."""
    if record is None:
        return group.line.doc
    old = document(record)
    if not group.fresh or record.chain[-1].kind != group.line.kind:
        return old
    new: dict[str, Any] = json.loads(_with_secrets(group.doc, record))
    if if_exists == "return":
        return counted(group.line.kind, old, new)
    with below(tuple([node.name for node in record.chain])):
        ours = _knows_columns(record, old, follow)
        return replaced(group.line.kind, old, new, ours=ours, follows=follow is not None)


def _knows_columns(record: Record, old: Mapping[str, Any], follow: Follow | None) -> bool:
    """Whether the columns of the file have the ids of this very table.

    Raises EntityAlreadyExists if people have added columns since then: two columns would have one id.
    """
    known = None if follow is None else follow.columns.get(record.chain[-1].id)
    if known is not None and old["last_column_id"] > known:
        path = format_path([node.name for node in record.chain])
        raise EntityAlreadyExists(path, f"another call added columns to {path} while the import ran; import again")
    return known is not None


def _meet(made: ChunkWrites, group: Group, record: Record, if_exists: IfExists, follow: Follow | None) -> Nodes:
    """Decide the writes for an entity that exists already."""
    line, own = group.line, record.chain[-1]
    path = format_path([n.name for n in record.chain])
    old, placed = document(record), _placed(group, record, if_exists, follow)
    same = old == placed
    if own.kind != line.kind or (not same and _folds(line, own)):
        what = f"is a {own.kind}" if own.kind != line.kind else "compares names differently"
        raise EntityAlreadyExists(path, f"line {group.number}: {path} already exists and {what}; it cannot be replaced")
    if not line.in_use and own.in_use and (if_exists == "replace" or (same and if_exists == "error")):
        made.disable.append(own)
    if same and (own.in_use >= line.in_use or if_exists == "return"):
        made.left += 1
        return record.chain
    if if_exists == "error":
        raise _differs(group.number, path)
    if line.in_use and not own.in_use and if_exists != "return":
        made.enable.append(own)
    if not same:
        check_in_use(record.chain[:-1])
        event = Event(line.kind, "alter", path, path)
        made.writes.append(Update(own.id, record.version, event, doc=to_json(placed)))
        made.guard(own_guards(record.chain))
    return record.chain


def _with_secrets(doc: str, before: Record | OwnedRecord) -> str:
    """Return a document of the file, with the present encrypted value in place of each handle."""
    if SEALED not in doc:
        return doc
    new = json.loads(doc)
    return to_json({**new, "properties": kept_from_file(new["properties"], properties_of(before))})


def _folds(line: EntityLine, own: Node) -> bool:
    return line.kind == "catalog" and bool(line.doc.get("fold_case")) != own.fold


def _own(
    made: ChunkWrites, group: Group, there: Standing, chain: Nodes, if_exists: IfExists, owner: Mapping[str, Any]
) -> None:
    """Write the owned rows of a group. ``owner``: the document of their entity after the commit."""
    names = [n.name for n in chain]
    for (number, line, given), row in zip(group.owned, there.owned, strict=True):
        path, stored = format_path((*names, line.name)), row
        if row is not None and row.id in there.stale:
            event, stored = Event(line.kind, "drop", path, None), None
            made.writes.append(Delete(chain[-1].id, line.kind, line.name, row.version, event, row.id))
        doc = given if stored is None else _with_secrets(given, stored)
        if line.kind == MODEL_VERSION.name:
            doc = to_json(with_aliases(json.loads(doc), line.name, owner))
        if stored is not None and (if_exists == "return" or document(stored) == json.loads(doc)):
            made.left += 1
            continue
        if stored is not None:
            check_partition(stored, path)
        if stored is not None and if_exists == "error":
            raise _differs(number, path)
        event = Event(line.kind, "create", None, path)
        if stored is not None:
            event = Event(line.kind, "alter", path, path)
        row_id, version = (0, 0) if stored is None else (stored.id, stored.version)
        made.writes.append(Put(chain[-1].id, line.kind, line.name, version, doc, event, row_id))
        check_in_use(chain[:-1])
        made.guard(guards_of(there.parents if there.own is None else chain))


def _differs(number: int, path: str) -> EntityAlreadyExists:
    return EntityAlreadyExists(
        path,
        f"line {number}: {path} already exists, and differs from the file; "
        'choose if_exists="return" to leave such entities, or "replace" to replace them',
    )
