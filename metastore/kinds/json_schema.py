"""The JSON Schema (2020-12) of each kind: it describes what ``to_dict()`` of an entity or owned row returns.

It is derived from the classes, so it always matches them. It allows further fields, because a later version of this
library may add some.
"""

from __future__ import annotations

import dataclasses
from copy import deepcopy
from typing import Any, Final, Literal, cast, get_args, get_origin

from metastore.arguments import shown
from metastore.columns.column import COLUMN_FIELDS, Column
from metastore.errors import InvalidArgument
from metastore.kinds.declared import Field, Kind
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.hints import hints_of, is_list, is_object, options
from metastore.kinds.registry import KINDS, OWNED_KINDS

__all__ = ["json_schema"]

Schema = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final[dict[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}
_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_COUNT: Final = {"type": "integer", "minimum": 1}
_TIME: Final = {"type": "string", "format": "date-time"}
_COMMON: Final[dict[str, Schema]] = {
    "path": _TEXT,
    "name": _TEXT,
    "names": {"type": "array", "items": _TEXT, "minItems": 1},
    "id": {"type": "integer"},
    "version": _COUNT,
    "scope_version": _COUNT,
    "comment": _TEXT_OR_NULL,
    "properties": {"type": "object", "additionalProperties": _TEXT},
    "created_by": _TEXT_OR_NULL,
    "created_at": _TIME,
    "modified_by": _TEXT_OR_NULL,
    "modified_at": _TIME,
    "in_use": {"type": "boolean"},
    "enabled": {"type": "boolean"},
}


def json_schema(kind: str) -> Schema:
    """Return the JSON Schema of what ``to_dict()`` returns for ``"table"``, ``"partition"``, or another kind.

    Raises InvalidArgument for a kind that this program does not know.
    """
    if not isinstance(kind, str) or (kind not in KINDS and kind not in OWNED_KINDS):
        known = ", ".join(sorted([*KINDS, *OWNED_KINDS]))
        raise InvalidArgument(f"there is no kind {shown(kind)}; known are {known}; declare others with ms.Kind(…)")
    cls: type[Entity | Owned] = KINDS[kind].entity if kind in KINDS else OWNED_KINDS[kind].row
    common = {name: {"const": kind} if name == "kind" else dict(_COMMON[name]) for name in cls.common_fields}
    properties = common | _own_fields(kind, cls)
    return deepcopy({"$schema": _DIALECT, "title": kind, **_object(properties)})  # the caller may change it


def _own_fields(kind: str, cls: type[Entity | Owned]) -> dict[str, Schema]:
    declared = KINDS.get(kind)
    if isinstance(declared, Kind):
        return {name: _declared(field) for name, field in declared.fields.items()}
    hints = hints_of(cast(type, cls))
    return {name: _of(hints[name]) for name in cls.doc_fields}


def _declared(field: Field) -> Schema:
    """Return the schema of a declared field. If its check is a function, the schema allows any value."""
    if not isinstance(field.check, type) or field.check not in _PLAIN:
        return {}
    types = [_PLAIN[field.check], *(["null"] if field.default is None else [])]
    return {"type": types if len(types) > 1 else types[0]}


def _of(hint: Any) -> Schema:
    """Return the schema of a type's JSON form."""
    alternatives = [_one(option) for option in options(hint)]
    if len(alternatives) == 1:
        return alternatives[0]
    if all(set(one) == {"type"} for one in alternatives):
        return {"type": [one["type"] for one in alternatives]}
    return {"anyOf": alternatives}


def _one(hint: Any) -> Schema:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if is_list(hint):
        return {"type": "array", "items": _of(get_args(hint)[0])}
    if is_object(hint):
        return {"type": "object", "additionalProperties": _of(get_args(hint)[1])}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        names = COLUMN_FIELDS if hint is Column else tuple([field.name for field in dataclasses.fields(hint)])
        return _object({name: _of(hints_of(hint)[name]) for name in names})
    return {}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}
