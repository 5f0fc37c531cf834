"""Columns: the values that callers pass and get back, and how an entity's document stores them.

``doc["columns"]`` is a list of nodes, in order, and ``doc["last_column_id"]`` the highest id ever given:

    {"id": 1, "name": "id", "type": "long", "nullable": false}
    {"id": 2, "name": "tags", "type": "list", "fields": [{"id": 3, "name": "element", "type": "string"}]}

A node always has ``id``, ``name`` and ``type``: the canonical text of a type without parts, else ``list``, ``map``
or ``struct``, with the parts as nodes in ``fields``. ``nullable`` (true), ``default`` (null), ``comment`` (null)
and ``auto_increment`` (false) are left out where they have the value in parentheses.

A column or nested field gets its id when it is stored, keeps it through renames and moves, and no id is used again.
Names are compared exactly, and are unique among siblings.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metastore.arguments import boolean
from metastore.columns.types import Nested, Type, parse, spell
from metastore.errors import InvalidArgument
from metastore.names import clean_name, clean_text, exact_text

__all__ = [
    "COLUMN_FIELDS",
    "Column",
    "Node",
    "attributes",
    "check_columns",
    "clean_optional",
    "columns_doc",
    "decode_columns",
    "field_metadata",
    "find",
    "new_node",
    "reconcile",
    "with_fields",
]

Node = dict[str, Any]
_KEPT_BY_REPLACE: Final = ("comment",)
COLUMN_FIELDS: Final = ("id", "name", "type", "nullable", "default", "comment", "auto_increment")
"""The fields that ``to_dict`` shows of a column."""


@dataclass(frozen=True)
class Column:
    """A column, or a nested field of one.

    ``type`` is spelled canonically (see :mod:`metastore.columns.types`); ``default`` is the text of an expression.
    ``fields`` are the parts of a nested type: a struct's fields, a list's ``element``, a map's ``key`` and
    ``value``. ``id`` is None until the column is stored, and is not compared.
    """

    name: str
    type: str
    nullable: bool = field(default=True, kw_only=True)
    default: str | None = field(default=None, kw_only=True)
    comment: str | None = field(default=None, kw_only=True)
    auto_increment: bool = field(default=False, kw_only=True)
    id: int | None = field(default=None, init=False, compare=False)
    fields: tuple[Column, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        parse(self.type)
        text, fields = _shape(exact_text(self.type, "a type"))
        vars(self).update(
            name=clean_name(self.name),
            type=text,
            fields=fields,
            default=clean_optional(self.default, "a default"),
            comment=clean_optional(self.comment, "a comment"),
        )
        boolean(self.nullable, "nullable")
        boolean(self.auto_increment, "auto_increment")

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain JSON values. The type's text has the parts of a nested type."""
        return {name: getattr(self, name) for name in COLUMN_FIELDS}


@functools.lru_cache(maxsize=4096)
def _shape(text: str) -> tuple[str, tuple[Column, ...]]:
    """Return the canonical text of a type and the columns that are its parts."""
    return _shape_of(parse(text))


def _shape_of(kind: Type) -> tuple[str, tuple[Column, ...]]:
    if not isinstance(kind, Nested):
        return str(kind), ()
    fields = []
    for part in kind.fields:
        values = {"name": part.name, "nullable": part.nullable, "comment": part.comment}
        fields.append(_column(values, *_shape_of(part.type)))
    return spell(kind.name, fields), tuple(fields)


def _column(values: Mapping[str, Any], text: str, fields: tuple[Column, ...]) -> Column:
    """Make a column of clean ``values`` (a node, or the attributes of a column) without checking them again."""
    column, get = object.__new__(Column), values.get
    vars(column).update(
        name=values["name"],
        type=text,
        nullable=get("nullable", True),
        default=get("default"),
        comment=get("comment"),
        auto_increment=get("auto_increment", False),
        id=get("id"),
        fields=fields,
    )
    return column


def with_fields(column: Column, name: str, fields: Sequence[Column]) -> Column:
    """Return ``column`` with the nested type ``name`` (list, map, struct) of exactly these ``fields``.

    For converters, which know comments and defaults of the parts that a type's text cannot express.
    """
    parts = check_columns(fields)
    if name == "map":
        key, value = parts
        parts = (_column({**vars(key), "nullable": False}, key.type, key.fields), value)
    return _column(vars(column), spell(name, parts), parts)


def field_metadata(column: Column, *, exact: bool) -> dict[str, str]:
    """Return the metadata of a column's field in another system; ``exact``: the field's own type says all of it."""
    metadata = {} if exact else {"metastore.type": column.type}
    if column.comment is not None:
        metadata["comment"] = column.comment
    if column.default is not None:
        metadata["metastore.default"] = column.default
    if column.auto_increment:
        metadata["metastore.auto_increment"] = "true"
    return metadata


def attributes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of Column that :func:`field_metadata` wrote."""
    texts = {key: value for key, value in metadata.items() if isinstance(value, str)}
    return {
        "comment": texts.get("comment"),
        "default": texts.get("metastore.default"),
        "auto_increment": texts.get("metastore.auto_increment") == "true",
    }


def clean_optional(value: object, what: str) -> str | None:
    """Return ``value`` if it is None or a string that can be stored."""
    return None if value is None else clean_text(value, what)


def check_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return ``columns`` as a tuple if each is a Column and no two have the same name."""
    if type(columns) is not tuple and (isinstance(columns, (str, Column)) or not isinstance(columns, Iterable)):
        raise InvalidArgument(f"columns must be a sequence of Column, not {type(columns).__name__}")
    checked, seen = tuple(columns), set()
    for column in checked:
        if not isinstance(column, Column):
            raise InvalidArgument(f"a column must be a Column, not {type(column).__name__}")
        if column.name in seen:
            raise InvalidArgument(f"two columns are named {column.name!r}; names must differ")
        seen.add(column.name)
    return checked


def columns_doc(columns: Iterable[Column]) -> dict[str, Any]:
    """Return ``columns`` and ``last_column_id`` of a new document, with new ids."""
    return reconcile({}, columns)


def reconcile(doc: Mapping[str, Any], columns: Iterable[Column]) -> dict[str, Any]:
    """Return the new ``columns`` and ``last_column_id`` of ``doc`` when these columns replace its own.

    A column (or nested field) of the same name and place keeps its id, and its comment if the new one has none.
    """
    ids = itertools.count(doc.get("last_column_id", 0) + 1)
    old = {node["name"]: node for node in doc.get("columns", ())}
    nodes = [_node(c, ids, old.get(c.name), _KEPT_BY_REPLACE) for c in check_columns(columns)]
    return {"columns": nodes, "last_column_id": next(ids) - 1}


def new_node(doc: dict[str, Any], column: Column, old: Node | None = None, keep: Sequence[str] = ()) -> Node:
    """Return the node of ``column``, with ids counted up in ``doc``.

    Where names agree, the ids come from the node ``old``, and so do the values in ``keep`` that ``column`` does not
    set.
    """
    ids = itertools.count(doc["last_column_id"] + 1)
    node = _node(column, ids, old, keep)
    doc["last_column_id"] = next(ids) - 1
    return node


def _node(column: Column, ids: Iterator[int], old: Node | None, keep: Sequence[str]) -> Node:
    nested = parse(column.type) if column.type[-1] == ">" else None
    node: Node = {
        "id": next(ids) if old is None else old["id"],
        "name": column.name,
        "type": column.type if nested is None else nested.name,
    }
    if not column.nullable:
        node["nullable"] = False
    if column.auto_increment:
        node["auto_increment"] = True
    if column.default is not None:
        node["default"] = column.default
    if column.comment is not None:
        node["comment"] = column.comment
    if old is not None:
        node.update({key: old[key] for key in keep if key in old and key not in node})
    if nested is not None:
        same = old is not None and old["type"] == node["type"]
        below = {child["name"]: child for child in old["fields"]} if old is not None and same else {}
        node["fields"] = [_node(c, ids, below.get(c.name), keep) for c in column.fields]
    return node


def decode_columns(nodes: Iterable[Node]) -> tuple[Column, ...]:
    """Return the columns that ``nodes`` store."""
    return tuple([_decode(node) for node in nodes])


def _decode(node: Node) -> Column:
    children = node.get("fields")
    if children is None:
        return _column(node, node["type"], ())
    fields = decode_columns(children)
    return _column(node, spell(node["type"], fields), fields)


def find(nodes: list[Node], names: Sequence[str]) -> Node | None:
    """Return the node at the path ``names``, or None."""
    here: Node | None = None
    for name in names:
        here = next((node for node in nodes if node["name"] == name), None)
        if here is None:
            return None
        nodes = here.get("fields", [])
    return here
