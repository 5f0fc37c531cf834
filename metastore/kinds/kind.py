"""What a kind is: where it may stand, and how its fields are checked, stored and read.

A kind adds no SQL. ``new_doc`` turns the fields of ``create`` into the kind's part of the
document and raises InvalidArgument for what does not fit; the class's ``doc_fields`` turn it
back. ``replace_doc`` does the same where a document is there already (``if_exists="replace"``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Any

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange, RemoveProperty, SetComment, SetProperty, encode
from metastore.kinds.entity import Entity, Owned
from metastore.names import clean_text, exact_text, format_path

__all__ = [
    "COMMON_CHANGES",
    "MAX_CHANGES",
    "MAX_DEPTH",
    "MAX_DOC",
    "Kind",
    "OwnedKind",
    "as_stored",
    "base_doc",
    "dump",
    "dump_changes",
    "is_too_deep",
    "no_fields",
    "to_json",
]

to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Write JSON as it is stored: compact, and ASCII, so that any database encoding holds it."""
MAX_DOC = 1 << 20
"""The largest document, in bytes of JSON."""
MAX_CHANGES = 4 << 20
"""The largest list of changes of one event, in bytes of JSON."""
MAX_DEPTH = 200
"""How deep lists and objects of a document may lie in each other: Python's JSON gives up at about a thousand."""


def no_fields() -> Doc:
    """The document part of a kind that has no fields of its own."""
    return {}


def as_stored(value: Any) -> Any:
    """Decode a field that is shown as the document has it."""
    return value


COMMON_CHANGES: tuple[type[EntityChange], ...] = (SetComment, SetProperty, RemoveProperty)
"""The changes that every kind takes."""


@dataclass(frozen=True)
class Kind:
    """An entity kind. ``parents``: the kinds it may stand below; none: below the root.

    ``since``: the format of changes (:data:`metastore.port.commit.FORMAT`) that a program must know to apply some here.
    """

    name: str
    family: str
    parents: tuple[str, ...]
    entity: type[Entity]
    new_doc: Callable[..., Doc] = no_fields
    replace_doc: Callable[..., Doc] | None = None
    changes: tuple[type[EntityChange], ...] = COMMON_CHANGES
    container: bool = False
    can_be_disabled: bool = False
    since: int = 1
    check_doc: Callable[[Doc, Doc], None] | None = None
    """Gets the document after changes and before; raises InvalidArgument for what they must not leave. The built-in
    changes leave nothing of that."""

    def check_changes(self, changes: Iterable[EntityChange]) -> None:
        """Raise InvalidArgument for what is no change of this kind."""
        for change in changes:
            if not isinstance(change, self.changes):
                raise InvalidArgument(f"{shown(change)} is not a change of a {self.name}")

    def format_of(self, changes: Iterable[EntityChange]) -> int:
        """Return the oldest format whose programs can apply ``changes`` to an entity of this kind."""
        return max([self.since, *[change.since for change in changes]])

    def document(self, comment: object, properties: object, fields: Mapping[str, Any]) -> Doc:
        """Return the whole document of a new entity."""
        return {**base_doc(comment, properties), **_checked(self, self.new_doc, (), fields)}

    def replaced(self, old: Doc, comment: object, properties: object, fields: Mapping[str, Any]) -> Doc:
        """Return the document that takes the place of ``old``."""
        if self.replace_doc is None:
            return self.document(comment, properties, fields)
        return {**base_doc(comment, properties), **_checked(self, self.replace_doc, (old,), fields)}


@dataclass(frozen=True)
class OwnedKind:
    """A kind of owned row."""

    name: str
    row: type[Owned]
    new_doc: Callable[..., Doc] = no_fields

    def document(self, comment: object, properties: object, fields: Mapping[str, Any]) -> Doc:
        """Return the whole document of a new row."""
        return {**base_doc(comment, properties), **_checked(self, self.new_doc, (), fields)}


@cache
def _parameters(build: Callable[..., Doc]) -> Mapping[str, Parameter]:
    return signature(build).parameters


def _checked(
    kind: Kind | OwnedKind, build: Callable[..., Doc], args: tuple[Any, ...], fields: Mapping[str, Any]
) -> Doc:
    known = _parameters(build)
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise InvalidArgument(f"a {kind.name} has no field {', '.join([shown(name) for name in unknown])}")
    missing = [n for n, p in known.items() if p.default is p.empty and p.kind is p.KEYWORD_ONLY and n not in fields]
    if missing:
        raise InvalidArgument(f"a {kind.name} needs {', '.join(missing)}")
    return build(*args, **fields)


def base_doc(comment: object, properties: object) -> Doc:
    """Return the part of a document that all kinds have."""
    if not isinstance(properties, Mapping):
        raise InvalidArgument(f"properties must be a mapping of strings, not {type(properties).__name__}")
    clean: dict[str, str] = {}
    for key, value in properties.items():
        if not clean_text(key, "a property's key"):
            raise InvalidArgument("a property's key must not be empty")
        clean[exact_text(key, "a property's key")] = clean_text(value, f"the property {shown(key)}")
    return {"comment": None if comment is None else clean_text(comment, "a comment"), "properties": clean}


def dump(doc: Mapping[str, Any], path: tuple[str, ...]) -> str:
    """Return ``doc`` as the JSON text that is stored: ASCII, so that any database encoding holds it."""
    return _written(doc, path, "document", MAX_DOC)


def dump_changes(changes: tuple[EntityChange, ...], path: tuple[str, ...]) -> str:
    """Return ``changes`` as the JSON text that history and the feed keep."""
    return _written(encode(changes), path, "list of changes", MAX_CHANGES)


def _written(value: object, path: tuple[str, ...], what: str, limit: int) -> str:
    try:
        text = to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{format_path(path)}: the {what} would be no JSON: {error}") from None
    if len(text) > limit:
        raise InvalidArgument(f"{format_path(path)}: the {what} has {len(text)} bytes; at most {limit} are allowed")
    return text


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects lie in each other deeper than a document may have them."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [v for values in below for v in values]
        if not level:
            return False
    return any(isinstance(v, dict | list) for v in level)
