"""Import a file with ids: an empty database becomes a copy of the exported one, row by row.

With history, only the epoch of the feed differs: positions of one database are invalid in the other. Without history,
the file has only live entities. Each row then gets one step of history, its present version, as if gc had removed all
earlier steps.

A restore that was stopped is continued when it is run again with the same file. Until it is finished, no client can use
the database (see :mod:`metastore.port.restore`). It keeps in memory the metalakes, and a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final
from uuid import UUID

from metastore.clock import Clock
from metastore.kinds.drop import DROP
from metastore.kinds.kind import to_json
from metastore.kinds.relation import relation_doc
from metastore.names import format_path
from metastore.port.backend import Backend
from metastore.port.conditions import ROOT_ID
from metastore.port.restore import COLUMNS, Ending, Row
from metastore.transfer.lines import Body, EntityLine, Numbers, OperationLine, OwnedLine, RelationLine
from metastore.transfer.outcomes import Imported
from metastore.transfer.reader import Checked, Progress, body

__all__ = ["Lines", "restore"]

_CHUNK: Final = 4000
_CHUNK_BYTES: Final = 8 << 20

Rows = dict[str, list[Row]]


def restore(backend: Backend, clock: Clock, stream: BinaryIO, checked: Checked, progress: Progress) -> Imported:
    """Restore a database from a checked file.

    Raises InvalidArgument if the database is not empty, or if another file is being restored into it.
    """
    header, footer, *_ = checked
    numbers = header.numbers
    assert numbers is not None
    if not header.history:  # each line becomes a step, after the position up to which gc has removed changes
        collected = max(1, numbers.seq)
        numbers = Numbers(numbers.id, collected + footer.lines, collected, numbers.forgotten)
    token = footer.checksum
    restorer = backend.restorer()
    done = restorer.begin(token, numbers.id, numbers.seq)
    lines = Lines(None if header.history else numbers.collected, clock.operation_id())
    for mark, rows in lines.chunks(body(stream, header, progress), done):
        restorer.write(token, done, mark, rows)
        done = mark
    epoch = f"{backend.now():014x}"
    restorer.finish(token, done, Ending(lines.top, numbers.collected, numbers.forgotten, epoch))
    counts = (footer.entities + footer.owned, 0)
    return Imported(footer.lines, *counts, footer.hash, token, restored=True)


class Lines:
    """Turns lines into rows."""

    def __init__(self, seq: int | None, operation_id: UUID) -> None:
        self.top: list[Row] = []
        """The guard rows directly below the root."""
        self._seq = seq
        """The position before the first step of a row without history; None: the file has the history."""
        self._operation_id = str(operation_id)
        self._owner: EntityLine | None = None

    def step(self, number: int, line: EntityLine | OwnedLine | RelationLine) -> OperationLine:
        """Return a line with the single step of a row's history. Its position follows ``seq``."""
        names, values = self._values(line)
        return OperationLine(self._step(number, names, values))

    def chunks(self, lines: Iterator[tuple[int, Body]], done: int) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of the lines after line ``done`` in chunks, each with the number of its last line."""
        rows: Rows = {}
        count = size = number = 0
        for number, line in lines:
            made = self._rows(number, line)
            if number <= done:
                continue
            for table, row in made:
                rows.setdefault(table, []).append(row)
                size += sum([len(value) for value in row if value.__class__ is str])  # isinstance takes twice as long
            count += 1
            if count == _CHUNK or size > _CHUNK_BYTES:
                yield number, rows
                rows, count, size = {}, 0, 0
        if rows:
            yield number, rows

    def _rows(self, number: int, line: Body) -> list[tuple[str, Row]]:
        if isinstance(line, OperationLine):
            return [("operation", line.row)]
        names, values = self._values(line)
        if isinstance(line, RelationLine):
            tables = ["relation"]
        elif isinstance(line, OwnedLine):
            tables = ["owned"]
        elif values["parent_id"] == ROOT_ID:
            tables = ["entity"]
            self.top.append(_row("guard", values))
        else:
            tables = ["entity", "guard"]
        rows = [(table, _row(table, values)) for table in tables]
        if self._seq is not None:
            rows.append(("operation", self._step(number, names, values)))
        return rows

    def _values(self, line: EntityLine | OwnedLine | RelationLine) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the names on the path of a line's step, and the columns of the line's rows in all tables."""
        if isinstance(line, EntityLine):
            self._owner = line
            own = {"kind": line.kind, "family": line.family, "name": line.names[-1], "in_use": line.in_use}
            return line.names, {**own, **line.row, "doc": to_json(line.doc), **line.audit}
        assert self._owner is not None
        names, owner_id = self._owner.names, self._owner.row["id"]
        if isinstance(line, OwnedLine):
            if line.kind == DROP.name:
                owner_id = ROOT_ID
            own = {"owner_id": owner_id, "kind": line.kind, "name": line.name, "id": line.id, "version": line.version}
            return (*names, line.name), {**own, "doc": to_json(line.doc), **line.audit}
        to_id = line.row["to_id"]
        doc = relation_doc(to_id, line.row["column_id"], line.value)
        ends = {"from_id": owner_id, "owner_id": owner_id, "other_id": to_id, "other_path": format_path(line.to or ())}
        return names, {**line.row, **ends, "kind": line.kind, "value": line.value, "doc": doc, **line.audit}

    def _step(self, number: int, names: tuple[str, ...], values: dict[str, Any]) -> Row:
        """Return the single step of history of a row."""
        assert self._seq is not None
        path, first = format_path(names), values["version"] == 1
        step = {
            "operation_id": self._operation_id,
            "ordinal": number,
            "seq": self._seq + number,
            "entity_id": values["id"],
            "version": values["version"],
            "owner_id": values.get("owner_id"),
            "kind": values["kind"],
            "action": "create" if first else "alter",
            "principal": values["modified_by"],
            "time": values["modified_at"],
            "path_before": None if first else path,
            "path_after": path,
            "changes": "[]",
            "scope_version": values.get("scope_version"),
            "in_use": values.get("in_use"),
            "doc": values["doc"],
            "other_id": values.get("other_id"),
            "other_path": values.get("other_path"),
        }
        return _row("operation", step)


def _row(table: str, values: dict[str, Any]) -> Row:
    return tuple([values.get(name) for name in COLUMNS[table]])
