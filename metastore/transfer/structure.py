"""Check that the lines of an export fit each other: documents, parents, rows, relations, ids, history.

It keeps in memory an object for each entity that can have children; for catalogs that fold names, see also ``twice``;
for files with ids, see also ``rows``.
"""

from __future__ import annotations

import json
from typing import Final

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.kind import MAX_DOC, to_json
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC
from metastore.kinds.registry import KINDS, kind_named, owned_kind_named
from metastore.kinds.relation import relation_named
from metastore.names import clean_name, fold, format_path, parse_path
from metastore.port.conditions import DROPPED, DROPPING, LIVE, PURGING, ROOT_ID
from metastore.port.unreadable import reason
from metastore.transfer.documents import check_document, check_versions
from metastore.transfer.ends import Ends
from metastore.transfer.lines import (
    OPERATION,
    Body,
    EntityLine,
    Header,
    OperationLine,
    OwnedLine,
    RelationLine,
)
from metastore.transfer.rows import Ids, check_column
from metastore.transfer.twice import Twice
from metastore.verify.history import changes_problem, doc_problem, parsed_problem, time_problem

__all__ = ["Structure", "check_below", "step_problem"]

_SURELY_FITS: Final = MAX_DOC // 8
"""If a line has at most this many bytes, the size of its document is not checked: the stored JSON is at most six times
as long.
"""
_PLACE: Final = ("slot", "column_id")
"""The fields that identify a relation among those of its entity and kind, besides its value."""
_SEQ: Final = OPERATION.index("seq")


class Structure:
    """Checks the documents and the relations between the lines.

    ``made``: the kind whose documents are not decoded, because the caller has just made them from checked values.
    """

    def __init__(self, header: Header, *, folds: bool, made: str | None = None) -> None:
        self._header = header
        self._made = made
        self._twice = Twice(folds=folds)
        self._own = set[tuple[object, ...]]()
        """The owned rows and the relations of the last entity."""
        self._ids = Ids()
        self.ends = Ends()
        self._kinds: dict[object, str] = {}
        """The kind of each entity that can have children, by its id, or by its names and families."""
        self.top: EntityLine | None = None
        self._last: EntityLine | None = None
        self._in_operations = False

    def check(self, line: Body, raw: bytes) -> None:
        """Check one more line; ``raw`` is its text. Raises InvalidArgument."""
        if isinstance(line, OperationLine):
            if not self._header.history:
                raise InvalidArgument("the line is an operation, but the header says that the file has no history")
            self._in_operations = True
            self._check_seq(line)
            if problem := step_problem(line):
                raise InvalidArgument(problem)
            return
        if self._in_operations:
            raise InvalidArgument("this line comes after the operations, which must be the last lines of an export")
        if isinstance(line, RelationLine):
            self._relation(line)
            return
        if isinstance(line, OwnedLine):
            self._owned(line, raw)
        else:
            self._complete()
            self._entity(line, raw)
            self._last = line
            self._own.clear()
            self.top = self.top or line

    def finish(self) -> None:
        """Check the conditions on the whole file. Raises InvalidArgument."""
        self._complete()
        self._ids.finish()

    def _complete(self) -> None:
        """Check the last entity, whose rows have all been read. Raises InvalidArgument."""
        if self._last is not None and not self._header.ids:
            check_versions(self._last, self._own)

    def _once(self, what: str, *place: object) -> None:
        """Raise InvalidArgument if the last entity already has such a row or relation."""
        if place in self._own:
            assert self._last is not None
            raise InvalidArgument(f"the file has {what} of {format_path(self._last.names)} twice")
        self._own.add(place)

    def _owned(self, line: OwnedLine, raw: bytes) -> None:
        if self._last is None:
            raise InvalidArgument(f"the {line.kind} {line.name!r} comes before all entities; it must follow its entity")
        path = format_path((*self._last.names, line.name))
        _check_name(line.name)
        self._check_id(line.id, path)
        owner = owned_kind_named(line.kind).owner
        if owner not in (None, self._last.kind):
            raise InvalidArgument(f"{path}: a {line.kind} belongs to a {owner}, not to a {self._last.kind}")
        if line.kind == PARTITION.name and (PARTITION_STATISTIC.name, line.name) in self._own:
            # an id decides to which partition statistics belong, so they are written later
            raise InvalidArgument(f"the statistics of the partition {path} come before it; put its line before theirs")
        self._once(f"the {line.kind} {line.name!r}", line.kind, line.name)
        if line.id is not None:
            self._ids.take(line.id, path)
        self._document(line, raw, path)

    def _document(self, line: EntityLine | OwnedLine, raw: bytes, path: str) -> None:
        if line.kind != self._made:
            _check_doc(line, raw, path)
        if not self._header.ids:
            check_document(line, path)

    def _relation(self, line: RelationLine) -> None:
        if self._last is None:
            raise InvalidArgument(
                f"the relation {line.kind} comes before all entities; it must follow the entity that has it"
            )
        if not self._header.history and (line.to is None or line.to_kind is None):
            raise InvalidArgument(f"the relation {line.kind} of {format_path(self._last.names)} has no target")
        for names in (line.to, line.column):
            for name in names or ():
                _check_name(name)
        for row_id in (line.row.get("id"), line.row.get("to_id")):
            self._check_id(row_id, format_path(self._last.names))
        if line.row:
            self._once(f"the relation {line.kind}", line.kind, *[line.row[name] for name in _PLACE], line.value)
            check_column(line, self._last)
            self._ids.take(line.row["id"], f"the relation {line.kind} of {format_path(self._last.names)}")
            self._ids.leads_to(line.row["to_id"], f"the relation {line.kind} of {format_path(self._last.names)}")
        else:
            relation = relation_named(line.kind)
            to = None if relation.exclusive else (line.to_kind, line.to)
            self._once(f"the relation {line.kind}", line.kind, to, line.column, line.value)
            self.ends.relation(relation, line, self._last)

    def _entity(self, line: EntityLine, raw: bytes) -> None:
        path = format_path(line.names)
        _check_name(line.names[-1])
        known = KINDS.get(line.kind)
        if known is not None and line.family != known.family:
            raise InvalidArgument(f"{path}: a {line.kind} is of the family {known.family}, not {line.family!r}")
        if known is None and any(kind.container and kind.family == line.family for kind in KINDS.values()):
            raise InvalidArgument(f"{path}: a {line.kind} cannot be of the family {line.family}")
        if known is not None and not line.in_use and not known.can_be_disabled:
            raise InvalidArgument(f"{path}: a {line.kind} cannot be disabled")
        parent = self._parent(line, path)
        if parent is not None:
            check_below(line.kind, parent, path)
        self._check_id(line.row.get("id"), path)
        if line.row:
            _check_row(line, path)
            self._ids.entity(line, path)
        else:
            self._twice.check(line)
        self._document(line, raw, path)
        if kind_named(line.kind).container:
            key = line.row["id"] if line.row else (line.names, (*line.under, line.family))
            if key in self._kinds:
                raise InvalidArgument(f"the file has {path} twice")
            self._kinds[key] = line.kind

    def _parent(self, line: EntityLine, path: str) -> str | None:
        """Return the parent's kind; None: the parent is the root, or not in the file."""
        root = self._header.root
        if len(line.names) == 1:
            if root is not None and line.names[0] != root[-1]:
                raise InvalidArgument(f"{path} is not below {format_path(root)}, which the header names")
            if root is None and KINDS.get(line.kind, kind_named(line.kind)).parents:
                raise InvalidArgument(f"{path}: a {line.kind} cannot be below the root")
            if not line.row or line.row["parent_id"] == ROOT_ID:
                return None
        key = line.row["parent_id"] if line.row else (line.names[:-1], line.under)
        parent = self._kinds.get(key)
        if parent is None or (line.row and len(line.names) == 1):
            raise InvalidArgument(f"the parent of {path} is missing, or comes after it")
        return parent

    def _check_seq(self, line: OperationLine) -> None:
        numbers, seq = self._header.numbers, line.row[_SEQ]
        if numbers is not None and seq is not None and not 0 < seq <= numbers.seq:
            said = f"the header says that the last one is {numbers.seq}"
            raise InvalidArgument(f"a change has the position {seq}; {said}")

    def _check_id(self, row_id: int | None, path: str) -> None:
        numbers = self._header.numbers
        if numbers is not None and row_id is not None and not 0 < row_id <= numbers.id:
            raise InvalidArgument(f"{path} has the id {row_id}; the header says that the last one is {numbers.id}")


def check_below(kind: str, parent: str, path: str) -> None:
    """Raise InvalidArgument if both kinds are known, and an entity of ``kind`` cannot be below one of ``parent``."""
    if kind in KINDS and parent in KINDS and parent not in KINDS[kind].parents:
        wanted = " or a ".join(KINDS[kind].parents) or "root"
        raise InvalidArgument(f"{path}: a {kind} must be below a {wanted}, not below a {parent}")


def step_problem(line: OperationLine) -> str | None:
    """Return why a step of history cannot be read; None: it can."""
    step = dict(zip(OPERATION, line.row, strict=True))
    problems = [
        changes_problem(step["changes"]),
        time_problem("made", step["time"]),
        None if step["doc"] is None else doc_problem("", step["doc"]),
        *(_no_json(name, step[name]) for name in ("result", "fences")),
        *(_no_path(step[name]) for name in ("path_before", "path_after")),
    ]
    first = next((problem for problem in problems if problem), None)
    return first and f"write {step['ordinal']} of operation {step['operation_id']}: {first}"


def _no_json(name: str, text: str | None) -> str | None:
    if not text:
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"its {name} cannot be read: {reason(error)}"
    return None


def _no_path(path: str | None) -> str | None:
    try:
        return None if path is None or parse_path(path) else "it has no path"
    except InvalidArgument as error:
        return str(error)


def _check_row(line: EntityLine, path: str) -> None:
    """Raise InvalidArgument if a column of a row has an impossible value, or if two columns contradict each other."""
    row, name = line.row, line.names[-1]
    if row["key"] not in (name, fold(name)):
        raise InvalidArgument(f"{path}: the key of {name!r} cannot be {shown(row['key'])}")
    if row["version"] < 1 or row["scope_version"] < 1:
        raise InvalidArgument(f"{path}: versions begin at 1")
    if row["state"] not in (LIVE, DROPPED, PURGING, DROPPING):
        raise InvalidArgument(f"{path}: there is no state {row['state']}")
    if row["state"] != PURGING and (row.get("dropped_at") is None) != (row["state"] in (LIVE, DROPPING)):
        raise InvalidArgument(f"{path}: a dropped entity needs the time of its drop, and a live one must not have it")


def _check_name(name: str) -> None:
    if clean_name(name) != name:
        raise InvalidArgument(f"the name {name!r} is not in the normal form NFC")


def _check_doc(line: EntityLine | OwnedLine, raw: bytes, path: str) -> None:
    if len(raw) > _SURELY_FITS and (size := len(to_json(line.doc))) > MAX_DOC:
        raise InvalidArgument(f"{path}: the document has {size} bytes; at most {MAX_DOC} are allowed")
    if problem := parsed_problem(line.kind, raw.decode(), line.doc):
        raise InvalidArgument(f"{path}: {problem}")
