"""Changes of a table's columns, indexes, location and format.

A column's ``path`` is one dotted path (``"address.city"``) or a tuple of names. Inside a list, the path continues with
``element``, inside a map with ``key`` or ``value``: ``"items.element.price"``. Each change touches only what it names,
so changes of different columns merge in either order. A missing column or index raises EntityNotFound, one that exists
already EntityAlreadyExists, and any other misfit InvalidArgument.

A rename also changes the references in partitioning, distribution, sort orders and indexes. A drop or a retype that
would leave such a reference without its column is refused. ``after`` is the name of a sibling, or ``FIRST``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from metastore.arguments import boolean
from metastore.columns.column import Column, Node, clean_optional, find, new_node
from metastore.columns.types import MAX_DEPTH, depth, parse
from metastore.errors import EntityAlreadyExists, InvalidArgument
from metastore.kinds.change import Doc, EntityChange, not_found
from metastore.kinds.table.document import clean_format, clean_location, layout_references, rename_references
from metastore.kinds.table.dropping import MARKER, check_free
from metastore.kinds.table.layout import Index, check_indexes, decode_indexes
from metastore.names import Path, clean_name, format_path, parse_path

__all__ = [
    "FIRST",
    "AddColumn",
    "AddIndex",
    "DropColumn",
    "DropIndex",
    "MoveColumn",
    "RenameColumn",
    "RetypeColumn",
    "SetAutoIncrement",
    "SetColumnComment",
    "SetColumnDefault",
    "SetColumnNullable",
    "SetFormat",
    "SetLocation",
]

FIRST: Final = ""
"""Puts a column before all its siblings. No column can have this name."""

Names = tuple[str, ...]
_RETYPE_KEEPS: Final = ("comment", "default", "auto_increment")


@dataclass(frozen=True)
class AddColumn(EntityChange):
    """Add a column, or a field of a struct: at the end, after a sibling, or FIRST."""

    path: Path
    type: str
    nullable: bool = field(default=True, kw_only=True)
    default: str | None = field(default=None, kw_only=True)
    comment: str | None = field(default=None, kw_only=True)
    after: str | None = field(default=None, kw_only=True)
    auto_increment: bool = field(default=False, kw_only=True)

    def apply(self, doc: Doc, path: Names) -> None:
        names = parse_path(self.path)
        siblings = _siblings(doc, path, names, "added")
        _must_be_free(doc, siblings, path, names)
        column = Column(
            names[-1],
            self.type,
            nullable=self.nullable,
            default=self.default,
            comment=self.comment,
            auto_increment=self.auto_increment,
        )
        _check_depth(names, column.type)
        at = len(siblings) if self.after is None else _place(doc, siblings, path, names, self.after)
        siblings.insert(at, new_node(doc, column))


@dataclass(frozen=True)
class RenameColumn(EntityChange):
    """Give a column another name; ``to`` is the bare name."""

    path: Path
    to: str

    def apply(self, doc: Doc, path: Names) -> None:
        names, node = _found(doc, path, self.path)
        new = (*names[:-1], clean_name(self.to))
        siblings = _siblings(doc, path, names, "renamed")
        if new == names:
            return
        _must_be_free(doc, siblings, path, new)
        node["name"] = new[-1]
        rename_references(doc, names, new)


@dataclass(frozen=True)
class DropColumn(EntityChange):
    """Drop a column and all fields below it."""

    path: Path

    def apply(self, doc: Doc, path: Names) -> None:
        names, node = _found(doc, path, self.path)
        _siblings(doc, path, names, "dropped").remove(node)
        _check_references(doc, f"the column {format_path(names)} cannot be dropped")


@dataclass(frozen=True)
class RetypeColumn(EntityChange):
    """Change a column's type; nested fields that keep their name keep their id, comment and default."""

    path: Path
    type: str

    def apply(self, doc: Doc, path: Names) -> None:
        names, node = _found(doc, path, self.path)
        column = Column(names[-1], self.type)
        _check_depth(names, column.type)
        fresh = new_node(doc, column, node, _RETYPE_KEEPS)
        node.pop("fields", None)
        node.update({key: fresh[key] for key in ("type", "fields") if key in fresh})
        _check_references(doc, f"the column {format_path(names)} cannot become {column.type}")


@dataclass(frozen=True)
class MoveColumn(EntityChange):
    """Put a column after a sibling, or FIRST."""

    path: Path
    after: str

    def apply(self, doc: Doc, path: Names) -> None:
        names, node = _found(doc, path, self.path)
        siblings = _siblings(doc, path, names, "moved")
        if self.after == names[-1]:
            raise InvalidArgument(f"the column {format_path(names)} cannot be moved after itself")
        siblings.remove(node)
        siblings.insert(_place(doc, siblings, path, names, self.after), node)


@dataclass(frozen=True)
class SetColumnComment(EntityChange):
    """Set a column's comment; None removes it."""

    path: Path
    text: str | None

    def apply(self, doc: Doc, path: Names) -> None:
        _, node = _found(doc, path, self.path)
        _set(node, "comment", clean_optional(self.text, "a comment"), None)


@dataclass(frozen=True)
class SetColumnDefault(EntityChange):
    """Set a column's default, the text of an expression; None removes it."""

    path: Path
    default: str | None

    def apply(self, doc: Doc, path: Names) -> None:
        _, node = _found(doc, path, self.path)
        _set(node, "default", clean_optional(self.default, "a default"), None)


@dataclass(frozen=True)
class SetColumnNullable(EntityChange):
    """Say whether a column may be null; a map's key may not."""

    path: Path
    nullable: bool

    def apply(self, doc: Doc, path: Names) -> None:
        names, node = _found(doc, path, self.path)
        parent = find(doc["columns"], names[:-1])
        is_key = parent is not None and parent["type"] == "map" and names[-1] == "key"
        if boolean(self.nullable, "nullable") and is_key:
            raise InvalidArgument(f"{format_path(names)} is the key of a map, which is never null")
        _set(node, "nullable", self.nullable, True)


@dataclass(frozen=True)
class SetAutoIncrement(EntityChange):
    """Say whether the column's values are generated by counting up."""

    path: Path
    auto_increment: bool

    def apply(self, doc: Doc, path: Names) -> None:
        _, node = _found(doc, path, self.path)
        _set(node, "auto_increment", boolean(self.auto_increment, "auto_increment"), False)


@dataclass(frozen=True)
class AddIndex(EntityChange):
    """Add an index; :class:`metastore.kinds.table.layout.Index` describes the arguments."""

    name: str
    columns: tuple[str, ...]
    type: Literal["primary", "unique"] = field(default="primary", kw_only=True)

    def __post_init__(self) -> None:
        vars(self).update(vars(self._index()))

    def _index(self) -> Index:
        return Index(self.name, self.columns, type=self.type)

    def apply(self, doc: Doc, path: Names) -> None:
        index = self._index()
        if any(other["name"] == index.name for other in doc["indexes"]):
            raise _taken(path, "index", index.name)
        doc["indexes"] = check_indexes((*decode_indexes(doc["indexes"]), index), doc["columns"])


@dataclass(frozen=True)
class DropIndex(EntityChange):
    """Drop an index."""

    name: str

    def apply(self, doc: Doc, path: Names) -> None:
        name = clean_name(self.name)
        kept = [index for index in doc["indexes"] if index["name"] != name]
        if len(kept) == len(doc["indexes"]):
            raise not_found(path, "index", name)
        doc["indexes"] = kept


@dataclass(frozen=True)
class SetLocation(EntityChange):
    """Set the table's location; None removes it."""

    location: str | None

    def apply(self, doc: Doc, path: Names) -> None:
        doc["location"] = clean_location(self.location)


@dataclass(frozen=True)
class SetFormat(EntityChange):
    """Set the table's format, kept in lower case; None removes it."""

    format: str | None

    def apply(self, doc: Doc, path: Names) -> None:
        doc["format"] = clean_format(self.format)


def _found(doc: Doc, entity: Names, path: Path) -> tuple[Names, Node]:
    names = parse_path(path)
    node = find(doc["columns"], names)
    if node is None:
        check_free(doc, entity, names)
        raise not_found(entity, "column", format_path(names))
    return names, node


def _siblings(doc: Doc, entity: Names, names: Names, done: str) -> list[Node]:
    """Return the list of nodes that holds the column ``names``, or will hold it.

    Raises InvalidArgument unless it is the list of the table or of a struct: only these can change.
    """
    columns: list[Node] = doc["columns"]
    if len(names) == 1:
        return columns
    _, parent = _found(doc, entity, names[:-1])
    if parent["type"] != "struct":
        what = f"{format_path(names[:-1])} is of the type {parent['type']}"
        raise InvalidArgument(f"{format_path(names)} cannot be {done}: {what}; only a struct has fields to change")
    fields: list[Node] = parent["fields"]
    return fields


def _must_be_free(doc: Doc, siblings: list[Node], entity: Names, names: Names) -> None:
    if MARKER in doc:
        check_free(doc, entity, names)
    if any(node["name"] == names[-1] for node in siblings):
        raise _taken(entity, "column", format_path(names))


def _taken(entity: Names, what: str, name: str) -> EntityAlreadyExists:
    where = format_path(entity)
    return EntityAlreadyExists(f"{where}.{name}", f"{where} already has the {what} {name}; choose another name")


def _place(doc: Doc, siblings: list[Node], entity: Names, names: Names, after: str) -> int:
    """Return the index in ``siblings`` just after the sibling named ``after``."""
    if after == FIRST:
        return 0
    name = clean_name(after)
    for at, node in enumerate(siblings):
        if node["name"] == name:
            return at + 1
    check_free(doc, entity, (*names[:-1], name))
    raise not_found(entity, "column", format_path((*names[:-1], name)))


def _check_depth(names: Names, kind: str) -> None:
    if len(names) - 1 + depth(parse(kind)) > MAX_DEPTH:
        raise InvalidArgument(f"{format_path(names[:3])}… would nest more than {MAX_DEPTH} types inside each other")


def _check_references(doc: Doc, problem: str) -> None:
    for where, names in layout_references(doc):
        if find(doc["columns"], names) is None:
            raise InvalidArgument(f"{problem}: {where} refers to {format_path(names)}; change or drop that first")


def _set(node: Node, key: str, value: Any, usual: Any) -> None:
    """Set ``key`` of ``node``, or remove the key if the value is the usual one."""
    if value == usual:
        node.pop(key, None)
    else:
        node[key] = value
