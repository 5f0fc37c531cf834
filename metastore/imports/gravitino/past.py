"""Read the earlier versions of an entity that Gravitino's rows still hold.

Filesets, views, functions, policies and tables have rows for their versions; other kinds have none. Gravitino marks old
rows as deleted, and its garbage collection removes them later. Until then they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.things import Shape, Thing
from metastore.imports.gravitino.values import DAMAGED, known_audit, known_version

__all__ = ["Past", "read_past"]

Parts = dict[str, list[Row]]


class Past(NamedTuple):
    """An earlier version. ``audit``: who wrote it and when, if its rows say that; otherwise who made the entity."""

    version: int
    thing: Thing
    audit: Mapping[str, Any]


def read_past(
    shape: Shape,
    source: Source,
    rows: Sequence[Row],
    columns: Mapping[int, list[Row]],
    read_one: Callable[[Shape, Row, Parts], Thing | str],
) -> dict[int, list[Past]]:
    """Return the versions before the current one, oldest first, by Gravitino's id. Unreadable versions are left out.

    ``columns``: the rows of the columns of each table.
    """
    changed = {shape.key(row): row for row in rows if _has_past(shape, row)}
    if "version" not in shape.parts or not changed:
        return {}
    table, word = shape.parts["version"]
    versions = source.newest(table, f"{shape.prefix}_id", list(changed), word, deleted_at=...)
    found = {}
    for key, row in changed.items():
        with suppress(*DAMAGED):  # the report names the entity, if its current version cannot be read either
            found[key] = _of_one(shape, row, versions.get(key, []), columns.get(key, []), read_one)
    return found


def _has_past(shape: Shape, row: Row) -> bool:
    with suppress(*DAMAGED):
        return known_version(row, shape.current) > 1
    return False


def _of_one(
    shape: Shape,
    row: Row,
    versions: list[Row],
    columns: list[Row],
    read_one: Callable[[Shape, Row, Parts], Thing | str],
) -> list[Past]:
    current = known_version(row, shape.current)
    numbers = {int(one["version"]) for one in versions}
    if not numbers:  # Gravitino 1.0 knows only the columns of a table's versions
        numbers = {int(one["table_version"]) for one in columns}
    past = []
    for number in sorted(number for number in numbers if 0 < number < current):
        said = _kept([one for one in versions if one["version"] == number])
        thing = read_one(shape, {**row, shape.current: number}, {"version": said, "column": columns})
        if isinstance(thing, Thing):
            past.append(Past(number, thing, _audit(row, [*said, *columns], number)))
    return past


def _kept(rows: list[Row]) -> list[Row]:
    """Return the rows of a version that are live; if all were replaced, those that were live last."""
    stands = min((int(one["deleted_at"] or 0) for one in rows if not one["deleted_at"]), default=None)
    last = max((int(one["deleted_at"] or 0) for one in rows), default=0) if stands is None else stands
    return [one for one in rows if int(one["deleted_at"] or 0) == last]


def _audit(row: Row, beside: list[Row], number: int) -> Mapping[str, Any]:
    """Return the audit of a version: from a row with its number and an audit, else from the entity's creation."""
    made = known_audit(row)
    of = next((one for one in beside if one.get("audit_info") and number in _numbers(one)), None)
    if of is not None:
        said = known_audit(of)
        return {**made, "modified_by": said["modified_by"], "modified_at": said["modified_at"]}
    by = made["created_by"] if number == 1 else None
    return {**made, "modified_by": by, "modified_at": made["created_at"]}


def _numbers(one: Row) -> tuple[object, ...]:
    return one.get("version"), one.get("table_version")
