"""Write the entities that were read, as an export: the lines of ``metastore export``, which an import then checks.

Ids are the store's own, counted in the order of the lines. Each entity owns a row ``origin`` with Gravitino's id.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final, NamedTuple

from metastore.clock import SYSTEM
from metastore.imports.gravitino.columns import Columns, keep_ids
from metastore.imports.gravitino.groups import SYSTEM_NAME
from metastore.imports.gravitino.links import Link, Links, read_links
from metastore.imports.gravitino.reading import Entity, entities, name_other_statistics
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.spool import spooled
from metastore.imports.gravitino.target import Contents, Written
from metastore.imports.gravitino.things import METALAKE
from metastore.imports.gravitino.tree import IsTaken, Tree, nothing_is_taken
from metastore.imports.gravitino.values import DAMAGED, Key
from metastore.kinds.registry import KINDS
from metastore.kinds.table.kind import TABLE
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.relations import NO_COLUMN, ONLY
from metastore.secrets.names import hidden_in
from metastore.transfer.lines import (
    Body,
    EntityLine,
    Header,
    Numbers,
    OperationLine,
    OwnedLine,
    RelationLine,
    default_under,
    write,
)
from metastore.transfer.reader import Checked
from metastore.transfer.restore import Lines
from metastore.transfer.structure import Structure
from metastore.transfer.tally import Tally

__all__ = ["Seen", "Standing", "write_file"]

_TELL: Final = 1000
_COLLECTED: Final = 1
"""The position up to which history counts as removed."""


Progress = Callable[[float], None]


def _silent(_: float) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Standing:
    """The state of the store before the import.

    ``is_taken`` returns whether an entity that was made here has a given place.
    """

    columns: Mapping[Key, Columns] = field(default_factory=dict)
    """The columns that an earlier import made."""
    is_taken: IsTaken = nothing_is_taken


@dataclass
class Seen:
    """The entities that exist in Gravitino, but were not imported completely.

    They are not gone, so nothing drops them.
    """

    left: set[Key] = field(default_factory=set)
    """Entities that exist in Gravitino but were not imported."""
    unsure: set[Key] = field(default_factory=set)
    """Entities whose relations are not all known."""


def write_file(
    source: Source,
    stream: BinaryIO,
    report: Report,
    standing: Standing,
    *,
    ids: bool,
    seen: Seen | None = None,
    progress: Progress = _silent,
) -> Contents:
    """Write all metalakes; return the contents that were written. It adds to ``seen``.

    ``ids``: write ids, versions, audits and earlier versions too, to restore an empty database, and check each line, so
    that the restore need not. ``progress``: called with the share of a metalake that is done. Raises InvalidArgument
    for a line that fails its check.
    """
    numbers, tally, written = _Numbers(), Tally(), Written()
    header = Header(None, ids, ids, None, "1970-01-01T00:00:00+00:00", SYSTEM_NAME, None)
    with tempfile.TemporaryFile() as body, tempfile.TemporaryFile() as steps:
        structure, history = Structure(header, folds=False, made=TABLE.name), _History(steps)
        for row, tree in _trees(source, report, standing):
            for line in _metalake(source, row, tree, report, standing, numbers, ids, seen or Seen(), progress):
                if ids:
                    history.add(line.line if isinstance(line, _Earlier) else line, tally)
                if not isinstance(line, _Earlier):
                    text = write(line, None)
                    if ids:
                        structure.check(line, text)
                    tally.add(line, text)
                    body.write(text)
                    written.add(line)
        if ids:
            structure.finish()
            header = replace(header, numbers=Numbers(numbers.last, history.last, _COLLECTED, 0))
        stream.write(write(header, None))
        for file in (body, steps):
            file.seek(0)
            shutil.copyfileobj(file, stream)
    footer = tally.footer()
    stream.write(write(footer, None))
    stream.flush()
    contents = written.contents()
    if ids:
        contents.checked = Checked(header, footer, structure.top, structure.ends.families)
    return contents


class _Earlier(NamedTuple):
    """An earlier version of the entity that comes next."""

    line: EntityLine


class _History:
    """The steps of history: one for each row, and before an entity's own step those of its earlier versions.

    Most versions are unknown, so the database counts as one where gc has removed the older history.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.last = _COLLECTED
        self._stream = stream
        self._lines = Lines(_COLLECTED, SYSTEM.operation_id())

    def add(self, line: Body, tally: Tally) -> None:
        """Write the step of a line."""
        assert not isinstance(line, OperationLine)
        self.last += 1
        step = self._lines.step(self.last - _COLLECTED, line)
        text = write(step, None)
        tally.add(step, text)
        self._stream.write(text)


@dataclass
class _Numbers:
    last: int = 0
    of: dict[Key, int] = field(default_factory=dict)

    def new(self) -> int:
        self.last += 1
        return self.last

    def entity(self, key: Key) -> int:
        """Return the id of an entity. Relations may name the id before the entity's own line."""
        if key not in self.of:
            self.of[key] = self.new()
        return self.of[key]


def _trees(source: Source, report: Report, standing: Standing) -> Iterator[tuple[Row, Tree]]:
    done = set[int]()
    for row in list(source.rows(METALAKE.table)):
        try:
            key = METALAKE.key(row)
        except DAMAGED as error:
            what = f"metalake {row.get('metalake_name')!r}: its row has no usable id ({type(error).__name__})"
            report.find("unreadable", what)
            continue
        if key in done:
            report.find("double", f"metalake {METALAKE.name(row)!r} ({key})", "the first row was taken")
            continue
        done.add(key)
        yield row, Tree(source, row, report, standing.is_taken)


def _metalake(
    source: Source,
    row: Any,
    tree: Tree,
    report: Report,
    standing: Standing,
    numbers: _Numbers,
    ids: bool,
    seen: Seen,
    progress: Progress,
) -> Iterator[Body | _Earlier]:
    links = read_links(source, tree, report)
    many = len(tree.names)
    every = _counted(entities(source, row, tree, report, past=ids), 0, 2 * many, progress)
    with spooled(every) as read:  # read all rows first: some are left out because of later ones
        for entity in _counted(read, many, 2 * many, progress):
            report.counts[entity.key[0]] = report.counts.get(entity.key[0], 0) + 1
            _name_secrets(entity, report)
            yield from _lines(entity, tree, links, report, standing.columns, numbers, ids)
    for column, left in links.columns.items():
        for link in left:
            report.find("dangling", f"{link.kind} {link.to[1]} on the column {column}, which is gone")
    name_other_statistics(source, tree.id, report)
    seen.left |= tree.left
    seen.unsure |= links.unsure


def _counted(read: Iterator[Entity], done: int, total: int, progress: Progress) -> Iterator[Entity]:
    """Yield entities, and report the progress from time to time; ``done`` entities came before them."""
    for number, entity in enumerate(read, done):
        if number % _TELL == 0:
            progress(number / total)
        yield entity


def _name_secrets(entity: Entity, report: Report) -> None:
    """Report the properties that Gravitino hides, because this store has them in plain text."""
    path = ".".join(entity.names)
    docs = {f"{entity.key[0]} {path}": entity.thing.doc}
    docs |= {f"{kind} {path}.{name}": doc for kind, name, doc in entity.thing.owned}
    for named, doc in docs.items():
        for key in hidden_in(doc.get("properties") or {}):
            what = f"the property {key} of the {named}"
            report.find("secret", what, "came over in plain text; docs/gravitino.md says how to encrypt it")


def _lines(
    entity: Entity, tree: Tree, links: Links, report: Report, known: Mapping[Key, Columns], numbers: _Numbers, ids: bool
) -> Iterator[Body | _Earlier]:
    kind, names, thing = entity.key[0], entity.names, entity.thing
    doc, columns = thing.doc, Columns()
    if kind == "table":
        doc, columns = keep_ids(thing.doc, thing.columns, known.get(entity.key))
    doc, earlier = _past(entity, doc, columns)
    row: dict[str, Any] = {}
    if ids:
        own, parent = numbers.entity(entity.key), _parent(entity, numbers)
        row = {"id": own, "version": thing.version, "parent_id": parent, "key": names[-1], "fold": False}
        row |= {"state": LIVE, "scope_version": 1}
    under = default_under(None, len(names) - 1) if len(names) > 2 else ("metalake",)[: len(names) - 1]
    line = EntityLine(names, under, KINDS[kind].family, kind, thing.in_use, doc, entity.audit, row)
    for past, past_doc in zip(entity.past, earlier, strict=True):
        yield _Earlier(line._replace(doc=past_doc, audit=past.audit, row={**row, "version": past.version}))
    yield line
    owned = [*thing.owned, ("origin", SYSTEM_NAME, _origin(entity, columns))]
    rows = _each_once(owned, entity, report)
    # the origin comes first, so that it is in the entity's commit
    for owned_kind, name in sorted(rows, key=lambda row: (row[0] != "origin", row)):
        number, version = (numbers.new(), 1) if ids else (None, None)
        yield OwnedLine(owned_kind, name, rows[owned_kind, name], entity.audit, number, version)
    wanted = [*links.of.get(entity.key, ()), *[one for c in thing.columns for one in links.columns.pop(c, ())]]
    for link in wanted:
        if link.to in tree.names:
            yield _relation(link, tree, columns, doc, numbers, ids)
        elif not tree.is_left(link.to):
            report.find(
                "dangling", f"{link.kind} of the {kind} {'.'.join(names)}: the {link.to[0]} {link.to[1]} is gone"
            )


def _each_once(
    owned: Sequence[tuple[str, str, dict[str, Any]]], entity: Entity, report: Report
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the documents of owned rows by kind and name; if a name comes twice, the first one."""
    once: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, name, doc in owned:
        if once.setdefault((kind, name), doc) is not doc:
            what = f"{kind} {name!r} of the {entity.key[0]} {'.'.join(entity.names)}"
            report.find("double", what, "the first one was taken")
    return once


def _past(entity: Entity, doc: dict[str, Any], columns: Columns) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the documents now and in earlier versions. A column has one id in all of them, and no id is used twice."""
    if entity.key[0] != "table":
        return doc, [past.thing.doc for past in entity.past]
    ids, docs = dict(columns.ids), {one["id"]: one for one in doc["columns"]}
    last, earlier = doc["last_column_id"], []
    for past in entity.past:
        then, found = keep_ids(past.thing.doc, past.thing.columns, Columns(ids, docs, last))
        ids, docs = {**found.ids, **ids}, {**{one["id"]: one for one in then["columns"]}, **docs}
        last = found.last
        earlier.append(then)
    return {**doc, "last_column_id": last}, earlier


def _parent(entity: Entity, numbers: _Numbers) -> int:
    kinds = {2: "metalake", 3: "catalog", 4: "schema"}
    if len(entity.names) == 1:
        return ROOT_ID
    above = kinds[len(entity.names)]
    return numbers.entity((above, int(entity.row[f"{above}_id"])))


def _origin(entity: Entity, columns: Columns) -> dict[str, Any]:
    values: dict[str, Any] = {"version": entity.thing.version, "audit": entity.audit}
    if columns.ids:
        values["columns"] = {str(theirs): ours for theirs, ours in columns.ids.items()}
    return {"comment": None, "properties": {}, "key": str(entity.key[1]), "values": values}


def _relation(
    link: Link, tree: Tree, columns: Columns, doc: Mapping[str, Any], numbers: _Numbers, ids: bool
) -> RelationLine:
    column, path = NO_COLUMN, None
    if link.column is not None:
        column = columns.ids[link.column]
        path = (next(one["name"] for one in doc["columns"] if one["id"] == column),)
    row = {}
    if ids:
        to = numbers.entity(link.to)
        slot = ONLY if link.kind == "owner" else to
        row = {"id": numbers.new(), "version": 1, "slot": slot, "column_id": column, "to_id": to}
    return RelationLine(link.kind, tree.names[link.to], link.to[0], path, link.value, link.audit, row)
