"""Read the tables in one snapshot, and yield the lines of an export."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeVar

from metastore.errors import InvalidArgument, UnreadableRow
from metastore.kinds.drop import DROP, target_id
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC, belongs
from metastore.kinds.secret import masked
from metastore.kinds.table.dropping import MARKER
from metastore.port.conditions import ROOT_ID
from metastore.port.snapshot import TableSnapshot
from metastore.port.unreadable import Unreadable, damaged, told
from metastore.transfer.lines import (
    AUDIT,
    OPERATION,
    Body,
    EntityLine,
    Header,
    OperationLine,
    OwnedLine,
    RelationLine,
    entity_row,
)
from metastore.transfer.relations import relation_lines
from metastore.transfer.structure import step_problem
from metastore.transfer.tally import Tally
from metastore.transfer.walk import GuardRow, Visit, walk
from metastore.verify.history import doc_problem, time_problem

__all__ = ["lines_of"]

T = TypeVar("T")

_Documents = Callable[[str, tuple[str, int, int], Sequence[Any]], dict[str, Any]]
"""A function that makes a document from a row's text, its kind, id and version, and its audit columns."""
_OWNED = ("owner_id", "kind", "name", "id", "version", "doc", *AUDIT)


def lines_of(
    snapshot: TableSnapshot,
    root: GuardRow | None,
    header: Header,
    kept: Tally,
    unreadable: Unreadable | None,
    *,
    check: bool = True,
) -> Iterator[Body]:
    """Yield the lines after the header; if lines are kept, begin with the last of them.

    Raises UnreadableRow for a damaged row. With ``unreadable``, the row and everything below it are left out.
    ``check``: each kind must be able to read its documents, as in a file; otherwise, any JSON object is yielded.
    """
    if not kept.operations:
        tree = _Tree(snapshot, root, header, unreadable, _document if check else _unchecked)
        yield from tree.lines(walk(snapshot, root, gone=header.history), kept)
    if header.history:
        steps = snapshot.rows("operation", OPERATION, ("operation_id", "ordinal"))
        for row in islice(steps, max(0, kept.operations - 1), None):
            line = told(partial(_operation, row), unreadable)
            if line is not None:
                yield line


class _Tree:
    """The lines of entities, of the rows that they own, and of the relations from them."""

    def __init__(
        self,
        snapshot: TableSnapshot,
        root: GuardRow | None,
        header: Header,
        unreadable: Unreadable | None,
        document: _Documents,
    ) -> None:
        self._snapshot, self._ids, self._unreadable, self._document = snapshot, header.ids, unreadable, document
        self._top, self._history = ROOT_ID if root is None else root.parent_id, header.history
        self._root = None if root is None else root.id
        self._left_out: set[int] = set()
        self._drops = _drops(snapshot) if header.history else {}

    def lines(self, chunks: Iterable[list[Visit]], kept: Tally) -> Iterator[Body]:
        before = max(0, kept.entities - 1)
        drop = kept.owned_after
        for visits in chunks:
            if before >= len(visits):
                before -= len(visits)
                continue
            for n, line in enumerate(self._chunk(visits[before:])):
                if n >= drop:
                    yield line
            before = drop = 0

    def _chunk(self, visits: list[Visit]) -> Iterator[Body]:
        """Yield the lines of entities, by id, each with the rows that it owns."""
        wanted = [visit.row.id for visit in visits]
        rows = self._snapshot.rows
        entities = {row[0]: row for row in rows("entity", ("id", "version", "doc", *AUDIT), ("id",), wanted)}
        owned = rows("owned", _OWNED, ("owner_id", "kind", "name"), wanted)
        groups = groupby(owned, itemgetter(0))
        owner, group = next(groups, (None, iter(())))
        shown: dict[int, EntityLine] = {}
        for visit in visits:
            entity = self._entity(visit, entities.get(visit.row.id))
            if entity is None:
                self._left_out.add(visit.row.id)
            else:
                shown[visit.row.id] = entity
        relations: dict[int, list[RelationLine]] = {}
        docs = {row_id: row[2] for row_id, row in entities.items()}
        sound = [visit for visit in visits if visit.row.id in shown]
        found = relation_lines(
            self._snapshot, self._top, self._root, sound, docs, self._damaged, ids=self._ids, history=self._history
        )
        for from_id, relation in found:
            relations.setdefault(from_id, []).append(relation)
        for visit in visits:
            entity = shown.get(visit.row.id)
            if entity is not None:
                yield entity
            if owner == visit.row.id:
                kept = () if entity is None else group if self._history else _seen(group)
                lines = (told(partial(_owned, row, self._ids, self._document), self._unreadable) for row in kept)
                yield from (line for line in lines if line is not None)
                owner, group = next(groups, (None, iter(())))
            if entity is not None:
                yield from (_owned(row, self._ids, self._document) for row in self._drops.get(visit.row.id, ()))
                yield from relations.get(visit.row.id, ())

    def _damaged(self, ids: Collection[int]) -> set[int]:
        """Return the ids of those entities that cannot be read; the file leaves them out, with all below them."""
        if self._unreadable is None or not ids:
            return set()
        guards = self._snapshot.rows("guard", ("id", "kind", "name"), ("id",), sorted(ids))
        entities = self._snapshot.rows("entity", ("id", "version", "doc", *AUDIT), ("id",), sorted(ids))
        known = {row[0]: row for row in entities}
        return {row_id for row_id, kind, name in guards if not self._is_sound(kind, name, known.get(row_id))}

    def _is_sound(self, kind: str, name: str, row: tuple[Any, ...] | None) -> bool:
        if row is None:
            return False
        row_id, number, doc, *audit = row
        with suppress(UnreadableRow):
            _check_text(name, (kind, row_id, number))
            self._document(doc, (kind, row_id, number), audit)
            return True
        return False

    def _entity(self, visit: Visit, row: tuple[Any, ...] | None) -> EntityLine | None:
        if visit.row.parent_id in self._left_out:
            return None
        entity = told(partial(_entity, visit, row, self._ids, self._document), self._unreadable)
        if entity is not None and not self._history:
            # a column that is being dropped in steps is already left out of the columns
            doc = {key: value for key, value in entity.doc.items() if key != MARKER}
            return entity._replace(doc=doc)
        return entity


def _drops(snapshot: TableSnapshot) -> dict[int, list[tuple[Any, ...]]]:
    """Return the rows of drops in steps, by the dropped entity. In the file they follow this entity."""
    drops: dict[int, list[tuple[Any, ...]]] = {}
    for row in snapshot.rows("owned", _OWNED, ("owner_id", "kind", "name"), [ROOT_ID]):
        if row[1] == DROP.name:
            drops.setdefault(target_id(row[2]), []).append(row)
    return drops


def _seen(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one owner that its readers see: without partitions that are being dropped or were dropped.

    Rows are ordered by kind, so a partition comes before its statistics. A drop of a partition keeps the statistics.
    """
    partitions = dict[str, int]()
    for row in rows:
        _, kind, name, row_id, *_ = row
        if kind == PARTITION.name:
            if _is_dropping(row):
                continue
            partitions[name] = row_id
        if kind != PARTITION_STATISTIC.name or belongs(row_id, partitions.get(name)):
            yield row


def _is_dropping(row: tuple[Any, ...]) -> bool:
    _, kind, _, _, _, doc, *_ = row
    if kind == PARTITION.name and isinstance(doc, str) and f'"{MARKER}"' in doc:
        with suppress(ValueError, RecursionError):  # the function that makes the row's line reports the damage
            return MARKER in json.loads(doc)
    return False


def _entity(visit: Visit, known: tuple[Any, ...] | None, ids: bool, document: _Documents) -> EntityLine:
    row = visit.row
    if known is None:
        raise damaged(InvalidArgument("it has no document"), row.kind, row.id, None)
    _, number, doc, *audit = known
    _check_text(row.name, (row.kind, row.id, number))
    stands = (row.parent_id, row.key, bool(row.fold), row.state, row.scope_version)
    marks = (row.dropped_at, None if row.mark is None else str(row.mark), *row[-3:])
    return EntityLine(
        visit.names,
        visit.under,
        row.family,
        row.kind,
        bool(row.in_use),
        document(doc, (row.kind, row.id, number), audit),
        dict(zip(AUDIT, audit, strict=True)),
        entity_row((row.id, number, *stands, *marks)) if ids else {},
    )


def _owned(row: tuple[Any, ...], ids: bool, document: _Documents) -> OwnedLine:
    _, kind, name, row_id, number, doc, *audit = row
    shown = document(doc, (kind, row_id, number), audit)
    _check_text(name, (kind, row_id, number))
    audited = dict(zip(AUDIT, audit, strict=True))
    return OwnedLine(kind, name, shown, audited, *((row_id, number) if ids else (None, None)))


def _check_text(name: str, which: tuple[str, int, int]) -> None:
    """Raise UnreadableRow if a name in the database is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise damaged(InvalidArgument("its name is not UTF-8"), *which) from error


def _document(text: str, which: tuple[str, int, int], audit: Sequence[Any]) -> dict[str, Any]:
    """Return a document that can be imported. Raises UnreadableRow."""
    kind, *_ = which
    problem = doc_problem(kind, text) or time_problem("created", audit[1]) or time_problem("modified", audit[3])
    if problem:
        raise damaged(InvalidArgument(problem), *which)
    doc: dict[str, Any] = json.loads(masked(text))
    return doc


def _unchecked(text: str, which: tuple[str, int, int], _: Sequence[Any]) -> dict[str, Any]:
    """Return a document, for a comparison. Raises UnreadableRow if it is not a JSON object."""
    try:
        doc = json.loads(masked(text))
    except (ValueError, RecursionError) as error:
        raise damaged(error, *which) from error
    if not isinstance(doc, dict):
        raise damaged(InvalidArgument("its document is not a JSON object"), *which)
    return doc


def _operation(row: tuple[Any, ...]) -> OperationLine:
    line = OperationLine(_step(row))
    if problem := step_problem(line):
        step = dict(zip(OPERATION, line.row, strict=True))
        position = None if step["seq"] is None else str(step["seq"])
        raise damaged(InvalidArgument(problem), step["kind"], step["entity_id"], step["version"], position)
    return line


def _step(row: tuple[Any, ...]) -> tuple[Any, ...]:
    values = dict(zip(OPERATION, row, strict=True))
    values["operation_id"] = str(values["operation_id"])
    for flag in ("in_use", "fold"):
        values[flag] = None if values[flag] is None else bool(values[flag])
    for text in ("doc", "changes", "result"):  # an export has handles: the ciphertexts stay in this database
        values[text] = None if values[text] is None else masked(values[text])
    return tuple(values.values())
