"""The content of a database, without ids, times and scope versions: the same for equal databases of any backend."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from metastore.kinds.drop import DROP
from metastore.port.conditions import PURGING

__all__ = ["COLUMNS", "ORDER", "Content", "content_of"]

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "operation": (
        *("seq", "entity_id", "owner_id", "version", "kind", "action", "principal", "path_before", "path_after"),
        *("doc", "in_use", "operation_id"),
    ),
    "guard": ("id", "parent_id", "kind", "name", "key", "state", "in_use", "mark"),
    "entity": ("id", "version", "doc", "created_by", "modified_by"),
    "owned": ("id", "owner_id", "kind", "name", "version", "doc", "created_by", "modified_by"),
    "relation": (
        *("from_id", "kind", "slot", "column_id", "value", "id", "to_id", "version", "created_by", "modified_by"),
    ),
    "lease": ("name", "id", "token", "owner"),
}
"""What is read of each table."""
ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "operation": ("seq", "operation_id", "ordinal"),
    "guard": ("id",),
    "entity": ("id",),
    "owned": ("id",),
    "relation": ("id",),
    "lease": ("name",),
}
Rows = Mapping[str, Sequence[Sequence[Any]]]


class Content(NamedTuple):
    """What is there, and how it came to be."""

    history: tuple[Any, ...]
    """What was applied, in the order of the feed, with the events of one operation together: a transaction of several
    statements draws its positions one statement after the other.
    """
    rows: frozenset[Any]
    left: tuple[str, ...] = ()
    """What nobody has cleared away: intents and marks."""

    def unordered(self) -> Content:
        """Return it with the feed's order only for each entity: the versions are part of it."""
        return self._replace(history=tuple(sorted(self.history, key=repr)))


def content_of(tables: Rows) -> Content:
    """Return what the rows of the tables mean."""
    steps = _together([s for s in tables["operation"] if s[0] is not None])
    names = _numbers(s[1] for s in steps)
    history = tuple(
        [
            (names[s[1]], names.get(s[2]), *_of_drop(s[4], s[3:10], names), None if s[10] is None else bool(s[10]))
            for s in steps
        ]
    )
    doomed = {row[0] for row in tables["guard"] if row[5] == PURGING}  # gone for good; gc may do the rest
    bodies = {row[0]: tuple(row[1:]) for row in tables["entity"] if row[0] not in doomed}
    found: set[Any] = set()
    for row_id, parent_id, kind, name, key, state, in_use, _ in tables["guard"]:
        if parent_id >= 0 and row_id not in doomed:
            body = bodies.pop(row_id, None)
            found.add(("guard", names.get(row_id), names.get(parent_id), kind, name, key, state, bool(in_use), body))
    found.update(("entity", names.get(i), body) for i, body in bodies.items())
    found.update(
        ("owned", names.get(row[0]), names.get(row[1]), *_of_drop(row[2], row[2:], names))
        for row in tables["owned"]
        if row[1] not in doomed
    )
    found.update(
        (
            "relation",
            names.get(from_id),
            kind,
            names.get(slot),
            *key,
            names.get(row_id),
            names.get(to_id),
            version,
            by,
            changer,
        )
        for from_id, kind, slot, *key, row_id, to_id, version, by, changer in tables["relation"]
        if doomed.isdisjoint((from_id, to_id))
    )
    found.update(("lease", *row[:1], *row[2:]) for row in tables["lease"])
    left = [f"an operation of {s[6]} is {s[5]}" for s in tables["operation"] if s[0] is None and s[5] == "pending"]
    left += [f"a mark is on {row[3]}" for row in tables["guard"] if row[7] is not None]
    return Content(history, frozenset(found), tuple(left))


def _of_drop(kind: str, values: Sequence[Any], names: Mapping[int | None, int]) -> tuple[Any, ...]:
    """Return the columns of a row without the ids, if it is one of a drop in steps: its name and its path have them."""
    if kind != DROP.name:
        return tuple(values)
    return tuple([_plain(value, names) if isinstance(value, str) else value for value in values])


def _plain(text: str, names: Mapping[int | None, int]) -> str:
    if text.startswith("{"):
        return json.dumps({key: value for key, value in json.loads(text).items() if key != "operation"}, sort_keys=True)
    return re.sub(r"\d+", lambda found: str(names.get(int(found[0]))), text)


def _together(steps: list[Sequence[Any]]) -> list[Sequence[Any]]:
    """Put the events of each operation where its last one is."""
    last = {step[11]: step[0] for step in steps}
    return sorted(steps, key=lambda step: (last[step[11]], step[0]))


def _numbers(ids: Iterable[int]) -> dict[int | None, int]:
    """Return a number for each id, in the order in which they appear."""
    numbers: dict[int | None, int] = {}
    for one in ids:
        numbers.setdefault(one, len(numbers))
    return numbers
