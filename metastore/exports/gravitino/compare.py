"""Compare the store with the result of an import from Gravitino: field by field, row by row, relation by relation.

So the report names every loss: a value that Gravitino's row cannot hold, or that the database changes, reads back
differently. It keeps a hash in memory for each entity.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, BinaryIO, Final

from metastore.exports.gravitino.addresses import Addresses
from metastore.exports.gravitino.report import ExportReport
from metastore.exports.gravitino.standing import standing
from metastore.imports.gravitino.groups import Group, groups
from metastore.names import format_path

__all__ = ["compare"]

Key = tuple[str, int]
Seen = dict[str, Any]
_MOST: Final = 5
"""How many parts of one entity a finding names."""


def compare(here: BinaryIO, addresses: Addresses, there: BinaryIO, report: ExportReport) -> None:
    """Report each difference between the two files.

    ``there``: the lines that were read back from Gravitino's tables.
    """

    def key_here(group: Group) -> Key | None:
        address = addresses.get(group.entity.kind, group.entity.names)
        return None if address is None else (group.entity.kind, address.id)

    expected = _hashes(here, key_here, _here)
    found = _hashes(there, _key_there, _there)
    differ = {key for key, value in expected.items() if found.get(key) != value}
    if not differ:
        return
    shown = {key: _there(one) for one in groups(there) if (key := _key_there(one)) in differ}
    for group in groups(here):
        key = key_here(group)
        if key is not None and key in differ:
            _name(group, _here(group), shown.get(key), report)


def _hashes(file: BinaryIO, key_of: Callable[[Group], Key | None], show: Callable[[Group], Seen]) -> dict[Key, bytes]:
    hashes = {}
    for group in groups(file):
        key = key_of(group)
        if key is not None:
            hashes[key] = sha256(json.dumps(show(group), sort_keys=True).encode()).digest()
    return hashes


def _key_there(group: Group) -> Key | None:
    origin = group.origin
    return None if origin is None else (group.entity.kind, int(origin.doc["key"]))


def _name(group: Group, here: Seen, there: Seen | None, report: ExportReport) -> None:
    what = f"{group.entity.kind} {format_path(group.entity.names)}"
    if there is None:
        report.find("changed", what, "it was written, and cannot be read there")
        return
    parts = sorted(part for part in {*here, *there} if here.get(part) != there.get(part))
    more = f" and {len(parts) - _MOST:,} more" if len(parts) > _MOST else ""
    report.find("changed", f"{what}: {', '.join(parts[:_MOST])}{more}", "it differs there")


def _here(group: Group) -> Seen:
    """Return the parts of an entity as the store has them. A table's location becomes a property, as in Gravitino."""
    version, audit = standing(group)
    seen = _seen(group, version, audit)
    location = group.entity.doc.get("location") if group.entity.kind == "table" else None
    if location is not None:
        seen["properties"] = {**seen["properties"], "location": location}
    return seen


def _there(group: Group) -> Seen:
    origin = group.origin
    assert origin is not None
    values = origin.doc["values"]
    return _seen(group, values["version"], values["audit"])


def _seen(group: Group, version: int, audit: Mapping[str, Any]) -> Seen:
    line = group.entity
    seen: Seen = {**line.doc, "path": line.names, "in_use": line.in_use, "comment": line.doc["comment"] or None}
    if line.kind == "model":  # Gravitino does not count the changes of a model or of a version
        version = 1
    if line.kind == "table":
        seen["columns"] = [_column(one) for one in line.doc["columns"]]
        del seen["last_column_id"]
    seen |= {"version": version, "created and changed": dict(audit)}
    for row in group.owned:
        if row.kind != "origin":
            seen[f"{row.kind} {row.name}"] = {**row.doc, "comment": row.doc["comment"] or None}
    for one in group.relations:
        if one.to is None:
            continue
        on = "" if one.column is None else f" of {format_path(one.column)}"
        value = f" ({one.value})" if one.value else ""
        seen[f"{one.kind}{on} {format_path(one.to)}{value}"] = one.to_kind
    return seen


def _column(doc: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a column without its ids, because an import gives other ids."""
    bare = {key: value for key, value in doc.items() if key != "id"}
    return {**bare, "fields": [_column(one) for one in doc["fields"]]} if "fields" in doc else bare
