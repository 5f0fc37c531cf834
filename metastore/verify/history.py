"""Check, in a stream, that the history of an entity or owned row is a chain of versions that ends at its row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from metastore.arguments import shown
from metastore.columns.column import Column
from metastore.columns.types import parse
from metastore.errors import InvalidArgument
from metastore.kinds.change import decode
from metastore.kinds.kind import check_depth
from metastore.kinds.registry import KINDS, OWNED_KINDS, RELATIONSHIPS, owned_kind_named
from metastore.names import parse_path
from metastore.port.conditions import DROPPED, LIVE, PURGING
from metastore.port.intents import PENDING
from metastore.port.records import Node, OwnedRecord, Record
from metastore.port.unreadable import MAX_TIME, reason
from metastore.verify.placed import Placed, seen_at
from metastore.verify.steps import Made, Place, made_problems, now_problems, place_problems
from metastore.verify.violations import UNAPPLIED, Violation

__all__ = ["ChainReader", "Link", "changes_problem", "doc_problem", "parsed_problem", "time_problem"]

_NO_CHANGES = "[]"
_COUNTERS = ("last_column_id", "latest_version")
"""Fields with the last number of a column or a version; the next number is counted from them."""


class Link(NamedTuple):
    """One row of the operation table, with the columns that this module reads."""

    entity_id: int
    version: int | None
    seq: int | None
    operation_id: Any
    owner_id: int | None
    kind: str
    action: str
    path_before: str | None
    path_after: str | None
    scope_version: int | None
    in_use: bool | None
    doc: str | None
    changes: str | None
    time: int
    principal: str | None = None
    other_id: int | None = None
    parent_id: int | None = None
    name: str | None = None
    state: int | None = None
    key: str | None = None
    through: int | None = None
    fold: bool | None = None
    family: str | None = None


class ChainReader:
    """Reads the applied steps of one id, by version. ``complete``: gc has not removed any history of this database.

    Before ``past_from``, gc may have removed versions between two kept ones, if it kept the older one for a pin.

    After the walk, ``last`` is the newest step, and ``waits_since`` is the time of the oldest pending intent.
    """

    def __init__(self, row_id: int, rows: Iterator[tuple[Any, ...]], *, complete: bool, past_from: int) -> None:
        self._id, self._complete, self._past_from = row_id, complete, past_from
        self._placed = Placed(past_from)
        self.last: Link | None = None
        self._first: Link | None = None
        self._taken: Link | None = None
        self.waits_since: int | None = None
        self._links = self._applied(Link(*row) for row in rows)
        self._head = next(self._links, None)

    def _applied(self, links: Iterator[Link]) -> Iterator[Link]:
        for link in links:
            if link.action not in UNAPPLIED or link.version is not None:
                yield link
            elif link.action == PENDING:
                self.waits_since = link.time if self.waits_since is None else min(self.waits_since, link.time)

    @property
    def first_path(self) -> str | None:
        """The path at the first kept step."""
        return self._head and (self._head.path_after or self._head.path_before)

    @property
    def first_kind(self) -> str | None:
        """The kind at the first kept step."""
        return self._head and self._head.kind

    def links(self) -> Iterator[Link]:
        """Yield all steps, without any check."""
        while self._head is not None:
            yield self._head
            self._head = next(self._links, None)

    def walk(self, path: str | None, *, there: bool = False) -> Iterator[Violation]:
        """Read to the end, and yield each violation of the chain. ``there``: the row of the last step still exists."""
        link = self._head
        while link is not None:
            for invariant, message in (*_link_problems(link), *self._order_problems(link)):
                yield Violation(invariant, self._id, path or self.first_path, message)
            if link.version is not None:
                for message in self._placed.follow(link):
                    yield Violation(15, self._id, path or self.first_path, message)
                shown = seen_at(link) > self._past_from
                for message in place_problems(link, self.last, complete=self._complete, shown=shown):
                    yield Violation(15, self._id, path or self.first_path, message)
                self._first = self._first or link
                self.last = link
                self._taken = link if link.key is not None else self._taken
            link = next(self._links, None)
        for message in self._placed.end(there=there):
            yield Violation(15, self._id, path or self.first_path, message)

    def _order_problems(self, link: Link) -> Iterator[tuple[int, str]]:
        last, version = self.last, link.version
        if version is None:
            yield 1, f"operation {link.operation_id} changed it without a version"
            return
        if last is None:
            if self._complete and version != 1:
                yield 1, f"its versions begin at {version}, although gc has removed none"
            elif version != 1 and seen_at(link) > self._past_from:
                yield 1, f"its versions begin at {version}: those before it are lost, but the past showed them"
            return
        known = last.version or 0
        if version == known:
            yield 1, f"version {version} is the work of two operations, {last.operation_id} and {link.operation_id}"
        elif version != known + 1 and (version < known or (link.seq or 0) > self._past_from):
            yield 1, f"after version {known} comes {version}: versions between them are lost"
        if last.seq is not None and link.seq is not None and link.seq <= last.seq:
            yield 8, f"version {version} is at position {link.seq}, version {known} after it at {last.seq}"
        if link.scope_version is not None and link.scope_version < (last.scope_version or 0):
            yield (
                8,
                f"the scope version goes back from {last.scope_version} to {link.scope_version} at version {version}",
            )
        if (link.kind, link.owner_id) != (last.kind, last.owner_id):
            yield 8, f"at version {version} it becomes a {link.kind}, before it was a {last.kind}"

    def check(
        self, path: str, kind: str, version: int, doc: str, stands: Mapping[str, Any], place: Place, made: Made
    ) -> Iterator[Violation]:
        """Read to the end, and compare the last step with the row's kind, version, document, state and place.

        The scope version may be ahead of the history, because a freeze or a cleared mark makes no version.
        """
        yield from self.walk(path, there=True)
        last = self.last
        if last is None:
            yield Violation(1, self._id, path, f"it is at version {version}, but no operation made it")
            return
        if last.version != version:
            yield Violation(1, self._id, path, f"it is at version {version}, its history ends at {last.version}")
            return
        for message in made_problems(self._first, last, made):
            yield Violation(8, self._id, path, message)
        for message in now_problems(last, self._taken, place):
            yield Violation(15, self._id, path, message)
        if last.kind != kind:
            yield Violation(8, self._id, path, f"it is a {kind}, in its history a {last.kind}")
        if last.doc != doc and not _equal(last.doc, doc):
            yield Violation(1, self._id, path, f"its document is not the one that version {version} wrote")
        said = _standing(last)
        for what, value in stands.items():
            if what == "scope version" and said[what] is not None and said[what] < value:
                continue
            if said.get(what) != value:
                message = f"its {what} is {value!r}, version {version} wrote {said.get(what)!r}"
                yield Violation(8, self._id, path, message)


def _link_problems(link: Link) -> Iterator[tuple[int, str]]:
    where = f"version {link.version}"
    if link.version is not None and (link.version < 1 or (link.version == 1) != (link.action == "create")):
        yield 1, f"{where} is the work of: {link.action}"
    if link.seq is None:
        yield 8, f"{where} is at no position of the feed"
    if problem := doc_problem("", link.doc):
        yield 8, f"{where}: {problem}"
    if problem := changes_problem(link.changes):
        yield 8, f"{where}: {problem}"
    if problem := time_problem("made", link.time):
        yield 8, f"{where}: {problem}"


def _standing(link: Link) -> dict[str, Any]:
    """Return an entity's place and state after a step, by its record."""
    try:
        name = parse_path(link.path_after or link.path_before)[-1]
    except InvalidArgument:
        name = None
    return {
        "name": name,
        "state": {"drop": DROPPED, "purge": PURGING}.get(link.action, LIVE),
        "scope version": link.scope_version,
        "in use": None if link.in_use is None else bool(link.in_use),
        "owner": link.owner_id,
    }


def _equal(one: str | None, other: str | None) -> bool:
    try:
        return one is not None and other is not None and bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def doc_problem(kind: str, text: str | None) -> str | None:
    """Return why a document cannot be read as one of ``kind``; None: it can. Unknown kinds: only common fields."""
    try:
        doc = json.loads(text or "")
    except Exception as error:  # noqa: BLE001  (as below)
        return _unread(error)
    return parsed_problem(kind, text or "", doc)


def parsed_problem(kind: str, text: str, doc: Any) -> str | None:
    """Return why ``doc``, a JSON value, cannot be read as a document of ``kind``. ``text``: JSON text with it."""
    try:
        check_depth(text, doc)
        _check_base(doc)
        _decode(kind, text, doc)
    except Exception as error:  # noqa: BLE001  (a broken document can raise anything in a decoder)
        return _unread(error)
    return None


def _unread(error: Exception) -> str:
    return f"its document cannot be read: {reason(error)}"


def time_problem(what: str, micros: object) -> str | None:
    """Return why a time cannot be shown; None: it can. ``micros``: microseconds since 1970."""
    if type(micros) is int and 0 <= micros <= MAX_TIME:
        return None
    return f"the time when it was {what} is beyond the calendar: {shown(micros)}"


def changes_problem(text: str | None) -> str | None:
    """Return why changes cannot be read; None: they can."""
    if not text or text == _NO_CHANGES:
        return None
    try:
        changes = json.loads(text)
        check_depth(text, changes)
        decode(changes)
    except Exception as error:  # noqa: BLE001  (broken changes can raise anything in a decoder)
        return f"its changes cannot be read: {reason(error)}"
    return None


def _check_base(doc: Any) -> None:
    if not isinstance(doc, dict):
        raise InvalidArgument("it is not a JSON object")
    comment, properties = doc["comment"], doc["properties"]
    if comment is not None and not isinstance(comment, str):
        raise InvalidArgument("the comment is not a string")
    if not isinstance(properties, dict) or not all(isinstance(v, str) for v in properties.values()):
        raise InvalidArgument("the properties are not all strings")


def _decode(kind: str, text: str, doc: dict[str, Any]) -> None:
    audit = (1, text, None, 0, None, 0)
    if kind in OWNED_KINDS or kind in RELATIONSHIPS:
        decoded: Any = owned_kind_named(kind).row(OwnedRecord(0, 0, kind, "", *audit))
    elif kind in KINDS:
        decoded = KINDS[kind].entity(Record((Node(0, kind, "", 1, True, False),), *audit))
    else:
        return
    for counter in _COUNTERS:
        if type(doc.get(counter, 0)) is not int:
            raise InvalidArgument(f"the {counter} is {shown(doc[counter])}")
    vars(decoded)["_parsed"] = doc  # otherwise the entity would parse the text again, which takes a third of the time
    for field in type(decoded).doc_fields:
        value = getattr(decoded, field)
        if isinstance(value, tuple):
            columns = [column for column in value if isinstance(column, Column)]
            for of_column in {column.type for column in columns}:
                parse(of_column)
            _check_numbers(columns, doc.get("last_column_id", 0), set())


def _check_numbers(columns: Sequence[Column], last: int, taken: set[int]) -> None:
    """Raise InvalidArgument unless each column has an id of its own, up to ``last``: tags and owners refer to it."""
    for column in columns:
        if type(column.id) is not int:
            raise InvalidArgument(f"the column {column.name!r} has no number")
        if column.id in taken or not 0 < column.id <= last:
            raise InvalidArgument(f"the column {column.name!r} has the number {column.id}, which is taken or not given")
        taken.add(column.id)
        _check_numbers(column.fields, last, taken)
