"""Convert column types between Gravitino's JSON and the store's spelling.

A type that the store does not have (a union, an unsigned number, a type that was not parsed) becomes an external type.
Its text begins with ``gravitino:``, so that the API returns it unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from metastore.columns.column import Column
from metastore.columns.types import Atomic, External, Type, parse
from metastore.serve.web import BadRequest

__all__ = ["type_json", "type_text"]

_TO_GRAVITINO: Final = {"int": "integer", "timestamptz": "timestamp_tz"}
_FROM_GRAVITINO: Final = {theirs: ours for ours, theirs in _TO_GRAVITINO.items()}
_PLAIN: Final = (
    *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "varchar", "char"),
    *("date", "time", "timestamp", "timestamp_tz", "interval_year", "interval_day", "fixed", "binary", "uuid"),
)
_WRITTEN: Final = re.compile(r"([a-z_ ]+?)\s*(\(\s*\d+\s*(?:,\s*\d+\s*)?\))?")
_KEPT: Final = "gravitino:"
_DEEPEST: Final = 100
"""How many types may be inside each other: the reader recurses at each level."""


def type_json(column: Column) -> Any:
    """Return the type of a column as JSON, with the comments of its fields."""
    return _json(parse(column.type), column.fields)


def type_text(value: Any, depth: int = 1) -> str:
    """Return the store's spelling of a type in JSON."""
    if depth > _DEEPEST:
        raise BadRequest(f"at most {_DEEPEST} types may be inside each other")
    if isinstance(value, str) and value:
        return _atomic(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise BadRequest(f"a type is a string, or an object with a type, not {type(value).__name__}")
    if value["type"] == "list":
        return f"list<{_part(value, 'elementType', 'containsNull', depth)}>"
    if value["type"] == "map":
        key = type_text(value.get("keyType"), depth + 1)
        return f"map<{key},{_part(value, 'valueType', 'valueContainsNull', depth)}>"
    if value["type"] == "struct":
        return f"struct<{', '.join(_field(one, depth) for one in _list(value.get('fields')))}>"
    if value["type"] == "external":
        return str(External(_text(value.get("catalogString"))))
    return _kept(value)


def _atomic(value: str) -> str:
    match = _WRITTEN.fullmatch(value.lower())
    if match is None or match[1] not in _PLAIN:
        return _kept(value)
    return _FROM_GRAVITINO.get(match[1], match[1]) + (match[2] or "").replace(" ", "")


def _kept(value: Any) -> str:
    return str(External(_KEPT + json.dumps(value, sort_keys=True)))


def _part(value: Mapping[str, Any], key: str, nulls: str, depth: int) -> str:
    nullable = value.get(nulls, True)
    if not isinstance(nullable, bool):
        raise BadRequest(f"{nulls} must be true or false")
    return type_text(value.get(key), depth + 1) + ("" if nullable else " not null")


def _field(value: Any, depth: int) -> str:
    if not isinstance(value, Mapping):
        raise BadRequest("a field of a struct must be an object")
    name = "`" + _text(value.get("name")).replace("`", "``") + "`"
    comment = value.get("comment")
    said = f" comment '{_text(comment).replace(chr(39), chr(39) * 2)}'" if comment else ""
    return f"{name}: {_part(value, 'type', 'nullable', depth)}{said}"


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest("the fields of a struct must be a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadRequest("a name, a comment or a catalogString of a type must be a string that is not empty")
    return value


def _json(kind: Type, fields: Sequence[Column]) -> Any:
    if isinstance(kind, Atomic):
        name = _TO_GRAVITINO.get(kind.name, kind.name)
        bare = not kind.arguments or (kind.bare and kind.name != "decimal")
        return name if bare else f"{name}({','.join(map(str, kind.arguments))})"
    if isinstance(kind, External):
        if kind.text.startswith(_KEPT):
            return json.loads(kind.text.removeprefix(_KEPT))
        return {"type": "external", "catalogString": kind.text}
    parts = [type_json(field) for field in fields]
    if kind.name == "list":
        return {"type": "list", "elementType": parts[0], "containsNull": fields[0].nullable}
    if kind.name == "map":
        nullable = fields[1].nullable
        return {"type": "map", "keyType": parts[0], "valueType": parts[1], "valueContainsNull": nullable}
    return {"type": "struct", "fields": [_named(f, part) for f, part in zip(fields, parts, strict=True)]}


def _named(field: Column, part: Any) -> dict[str, Any]:
    named = {"name": field.name, "type": part, "nullable": field.nullable}
    return named if field.comment is None else {**named, "comment": field.comment}
