"""Partitioning, distribution, sort orders, indexes and defaults: Gravitino's JSON and the store's texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from metastore.kinds.table.layout import Index, parts_of, spelled
from metastore.names import format_path, parse_path
from metastore.serve.gravitino.errors import NotSupported
from metastore.serve.gravitino.reading import field_path, mapping, text
from metastore.serve.web import BadRequest

__all__ = [
    "default_json",
    "default_text",
    "distribution_json",
    "distribution_text",
    "index_json",
    "index_of",
    "order_json",
    "order_text",
    "partitioning_json",
    "partitioning_text",
]

Argument = str | tuple[str, ...]
_ONE: Final = ("year", "month", "day", "hour")
_NUMERIC: Final = ("byte", "short", "integer", "long", "float", "double", "decimal")
_NO_DISTRIBUTION: Final = {"strategy": "none", "number": 0, "funcArgs": []}
_INDEXES: Final = {"PRIMARY_KEY": "primary", "UNIQUE_KEY": "unique"}
_TYPED: Final = ("literal", "field", "function")


def partitioning_text(value: Any) -> str:
    """Return the store's text of one partitioning."""
    one = mapping(value, "a partitioning")
    strategy = text(one, "strategy").lower()
    if one.get("assignments"):
        raise NotSupported("assignments of a partitioning are not supported; add the partitions by their own requests")
    if strategy == "function":
        return spelled(text(one, "funcName"), _arguments(one))
    if strategy in ("bucket", "list"):
        number = [_number(one, "numBuckets")] if strategy == "bucket" else []
        return spelled(strategy, [*number, *_paths(one)])
    if strategy not in (*_ONE, "identity", "range", "truncate"):
        raise BadRequest(f"{strategy[:40]!r} is not a strategy of a partitioning")
    width = [_number(one, "width")] if strategy == "truncate" else []
    return spelled(None if strategy == "identity" else strategy, [*width, field_path(one.get("fieldName"))])


def partitioning_json(text: str) -> dict[str, Any]:
    """Return one partitioning of the store as JSON."""
    function, arguments, _ = parts_of(text)
    if function in ("bucket", "truncate"):
        number, *columns = arguments
        names, size = [list(path) for path in columns], int(str(number))
        if function == "bucket":
            return {"strategy": function, "numBuckets": size, "fieldNames": names}
        return {"strategy": function, "width": size, "fieldName": names[0]}
    if function == "list":
        return {"strategy": function, "fieldNames": [list(path) for path in arguments], "assignments": []}
    if function is None or function in (*_ONE, "range"):
        one = {"strategy": function or "identity", "fieldName": list(arguments[0])}
        return {**one, "assignments": []} if function == "range" else one
    return {"strategy": "function", "funcName": function, "funcArgs": [_argument_json(a) for a in arguments]}


def distribution_text(value: Any) -> str | None:
    """Return the store's text of a distribution; None for the strategy none."""
    if value is None:
        return None
    one = mapping(value, "a distribution")
    strategy, number = text(one, "strategy").lower(), one.get("number", 0)
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadRequest("the number of a distribution must be an integer")
    if strategy == "none":
        return None
    if strategy == "hash":
        return spelled("hash", [str(number), *_arguments(one)])
    if number > 0 or (strategy == "even" and one.get("funcArgs")):
        raise NotSupported(f"a distribution {strategy} takes no number here, and the strategy even takes no arguments")
    return "even" if strategy == "even" else spelled(strategy, _arguments(one))


def distribution_json(text: str | None) -> dict[str, Any]:
    """Return the distribution of a table as JSON."""
    if text is None:
        return dict(_NO_DISTRIBUTION)
    if text == "even":
        return {**_NO_DISTRIBUTION, "strategy": "even"}
    function, arguments, _ = parts_of(text)
    number = int(str(arguments[0])) if function == "hash" else 0
    rest = arguments[1:] if function == "hash" else arguments
    return {"strategy": function, "number": number, "funcArgs": [_argument_json(a) for a in rest]}


def order_text(value: Any) -> str:
    """Return the store's text of one sort order."""
    one = mapping(value, "a sort order")
    term = mapping(one.get("sortTerm"), "sortTerm")
    direction = str(one.get("direction") or "asc").lower()
    nulls = str(one.get("nullOrdering") or ("nulls_first" if direction == "asc" else "nulls_last")).lower()
    if direction not in ("asc", "desc") or nulls not in ("nulls_first", "nulls_last"):
        raise BadRequest("a sort order is asc or desc, and nulls_first or nulls_last")
    rest = f"{direction} {nulls.replace('_', ' ')}"
    if term.get("type") == "function":
        return spelled(text(term, "funcName"), _arguments(term), rest)
    return spelled(None, [_argument(term)], rest)


def order_json(text: str) -> dict[str, Any]:
    """Return one sort order of the store as JSON."""
    function, arguments, rest = parts_of(text)
    direction, nulls = rest.split(" ", 1)
    shown = [_argument_json(a) for a in arguments]
    term = shown[0] if function is None else {"type": "function", "funcName": function, "funcArgs": shown}
    return {"sortTerm": term, "direction": direction, "nullOrdering": nulls.replace(" ", "_")}


def index_of(value: Any) -> Index:
    """Return an index; without a name it gets the name of its type."""
    one = mapping(value, "an index")
    written, columns = text(one, "indexType").upper(), one.get("fieldNames")
    if not isinstance(columns, list):
        raise BadRequest("the fieldNames of an index must be a list of lists of names")
    kind = _INDEXES.get(written)
    if kind is None:
        raise NotSupported(f"an index is PRIMARY_KEY or UNIQUE_KEY here, not {written[:40]}")
    paths = [field_path(path) for path in columns]
    name = one.get("name") or written
    return Index(name, tuple(map(format_path, paths)), type="primary" if kind == "primary" else "unique")


def index_json(index: Index) -> dict[str, Any]:
    """Return an index as JSON."""
    names = [list(path) for path in map(parse_path, index.columns)]
    return {"indexType": f"{index.type.upper()}_KEY", "name": index.name, "fieldNames": names}


def default_text(value: Any) -> str | None:
    """Return a column's default as the store keeps it: an expression's text, or the JSON that Gravitino gave."""
    if value is None:
        return None
    one = mapping(value, "a default")
    if one.get("type") == "unparsed":
        return text(one, "unparsedExpression")
    if one.get("type") not in _TYPED:
        raise BadRequest("a default is a literal, a field, a function or an unparsed expression")
    return json.dumps(one, sort_keys=True)


def default_json(text: str | None) -> dict[str, Any] | None:
    """Return a column's default as JSON; None without a default."""
    if text is None:
        return None
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and value.get("type") in _TYPED:
            return value
    return {"type": "unparsed", "unparsedExpression": text}


def _number(one: Mapping[str, Any], key: str) -> str:
    value = one.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"{key} must be an integer")
    return str(value)


def _paths(one: Mapping[str, Any]) -> Sequence[Argument]:
    names = one.get("fieldNames")
    if not isinstance(names, list):
        raise BadRequest("fieldNames must be a list of lists of names")
    return [field_path(path) for path in names]


def _arguments(one: Mapping[str, Any]) -> Sequence[Argument]:
    values = one.get("funcArgs")
    if not isinstance(values, list):
        raise BadRequest("funcArgs must be a list")
    return [_argument(mapping(value, "an argument")) for value in values]


def _argument(value: Mapping[str, Any]) -> Argument:
    kind = text(value, "type").lower()
    if kind == "field":
        return field_path(value.get("fieldName"))
    if kind != "literal":
        raise NotSupported(f"an argument is a field or a literal here, not a {kind[:40]}")
    written = str(value.get("value"))
    if str(value.get("dataType")).partition("(")[0] in _NUMERIC:
        return written
    return "'" + written.replace("'", "''") + "'"


def _argument_json(argument: Argument) -> dict[str, Any]:
    if isinstance(argument, tuple):
        return {"type": "field", "fieldName": list(argument)}
    if argument.startswith("'"):
        return {"type": "literal", "dataType": "string", "value": argument[1:-1].replace("''", "'")}
    return {"type": "literal", "dataType": "double" if "." in argument else "long", "value": argument}
