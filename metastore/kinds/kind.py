"""A kind of entity: its parents, its changes, and its documents.

A kind adds no SQL. Its fields are declared on the class of its entities, one :func:`metastore.kinds.field.doc_field`
each; the document, its replacement (``if_exists="replace"``) and the entity's attributes follow from that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any

from metastore.arguments import shown
from metastore.cached import cached_property
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange, RemoveProperty, SetComment, SetProperty, encode, property_text
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.field import DocField, check_names
from metastore.kinds.head import note_written
from metastore.kinds.secret import stored
from metastore.names import clean_text, exact_text, format_path

__all__ = [
    "COMMON_CHANGES",
    "MAX_CHANGES",
    "MAX_DEPTH",
    "MAX_DOC",
    "Kind",
    "OwnedKind",
    "base_doc",
    "check_depth",
    "dump",
    "dump_changes",
    "is_too_deep",
    "to_json",
]

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
# JSONEncoder.encode makes such an encoder at each call; one for all calls saves 5 % of the client's CPU time of an
# alter
_parts = c_make_encoder(None, _encoder.default, encode_basestring_ascii, None, ":", ",", False, False, False)


def to_json(value: object) -> str:
    """Write JSON in stored form: compact, and in ASCII, so that it fits any database encoding.

    Raises TypeError and ValueError. An object that contains itself raises RecursionError, like one that is nested too
    deep: a search for cycles would take a third of the time.
    """
    return "".join(_parts(value, 0))


MAX_DOC = 1 << 20
"""The largest document, in bytes of JSON."""
MAX_CHANGES = 4 << 20
"""The largest list of changes of one event, in bytes of JSON."""
MAX_DEPTH = 200
"""How deep lists and objects of a document may nest. Python's own JSON module fails at about a thousand, or later."""
_NESTING = (dict, list)


COMMON_CHANGES: tuple[type[EntityChange], ...] = (SetComment, SetProperty, RemoveProperty)
"""The changes that every kind takes."""


@dataclass(frozen=True)
class Kind:
    """A kind of entity. ``parents``: the kinds of its possible parents; ``()``: its parent is the root.

    ``since``: the format of changes (``FORMAT`` in ``port/intents.py``) that a program must know to apply changes of
    this kind.
    """

    name: str
    family: str
    parents: tuple[str, ...]
    entity: type[Entity]
    changes: tuple[type[EntityChange], ...] = COMMON_CHANGES
    container: bool = False
    can_be_disabled: bool = False
    since: int = 1
    stays: bool = False
    """Whether an entity of this kind never moves to another parent."""
    check_doc: Callable[[Doc, Doc], None] | None = None
    """A function that gets the document after changes and the one before, and raises InvalidArgument for a wrong
    result. Built-in kinds have None: their changes check what they write.
    """

    def check_changes(self, changes: Iterable[EntityChange]) -> None:
        """Raise InvalidArgument for an item that is not a change of this kind."""
        for change in changes:
            if not isinstance(change, self.changes):
                raise InvalidArgument(f"{shown(change)} is not a change of a {self.name}")

    def format_of(self, changes: Iterable[EntityChange]) -> int:
        """Return the oldest format of changes whose programs can apply ``changes`` to an entity of this kind."""
        return max([self.since, *[change.since for change in changes]])

    def document(self, comment: object, properties: object, fields: Mapping[str, Any]) -> Doc:
        """Return the whole document of a new entity."""
        return self.replaced({}, comment, properties, fields)

    def replaced(self, old: Mapping[str, Any], comment: object, properties: object, fields: Mapping[str, Any]) -> Doc:
        """Return the document that replaces ``old``."""
        return _document(self.name, self.entity.doc_fields, old, base_doc(comment, properties), fields)

    def replaced_by(self, old: Mapping[str, Any], new: Doc) -> Doc:
        """Return the document that replaces ``old``; ``new`` is the document that a new entity would get."""
        if self._stands_alone:
            return new
        own = self.entity.doc_fields.items()
        fields = {name: field.decode(new[name]) for name, field in own if field.given}
        return self.replaced(old, new["comment"], new["properties"], fields)

    @cached_property
    def _stands_alone(self) -> bool:
        return all(field.alone for field in self.entity.doc_fields.values())

    def take(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the caller's ``fields`` in a form that can be read more than once: iterators become their items."""
        own = self.entity.doc_fields
        return {name: own[name].take(value) if name in own else value for name, value in fields.items()}


@dataclass(frozen=True)
class OwnedKind:
    """A kind of owned row."""

    name: str
    row: type[Owned]
    owner: str | None = None
    """The kind of its owners; None: several kinds own such rows."""

    def document(self, comment: object, properties: object, fields: Mapping[str, Any]) -> Doc:
        """Return the whole document of a new row."""
        return _document(self.name, self.row.doc_fields, {}, base_doc(comment, properties), fields)


def _document(
    what: str, own: Mapping[str, DocField], old: Mapping[str, Any], doc: Doc, fields: Mapping[str, Any]
) -> Doc:
    """Add the kind's own fields to ``doc``, checked in the order of their declarations, and return it."""
    check_names(what, own, fields)
    for name, field in own.items():
        doc[name] = field.value(fields, doc, old)
    return doc


def base_doc(comment: object, properties: object) -> Doc:
    """Return the part of a document that all kinds have: its comment and its properties."""
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise InvalidArgument(f"properties must be a mapping of strings, not {type(properties).__name__}")
    clean: dict[str, str] = {}
    for key, value in properties.items():
        if not clean_text(key, "a property's key"):
            raise InvalidArgument("a property's key must not be empty")
        clean[exact_text(key, "a property's key")] = property_text(stored(value), key)
    return {"comment": None if comment is None else clean_text(comment, "a comment"), "properties": clean}


def dump(doc: Mapping[str, Any], path: tuple[str, ...], rest: str | None = None) -> str:
    """Return ``doc`` as the JSON text to store: in ASCII, so that it fits any database encoding.

    ``rest``: the text after the head, if ``doc`` is only the head (:mod:`metastore.kinds.head`).
    """
    text = _written(doc, path, "document", MAX_DOC, rest)
    note_written(text)
    return text


def dump_changes(changes: tuple[EntityChange, ...], path: tuple[str, ...]) -> str:
    """Return ``changes`` as the JSON text that history and the feed store."""
    return _written(encode(changes), path, "list of changes", MAX_CHANGES)


def _written(value: object, path: tuple[str, ...], what: str, limit: int, rest: str | None = None) -> str:
    try:
        text = to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{format_path(path)}: the {what} cannot be written as JSON: {error}") from None
    if rest is not None:
        text = text[:-1] + rest
    if len(text) > limit:
        raise InvalidArgument(f"{format_path(path)}: the {what} has {len(text)} bytes; at most {limit} are allowed")
    return text


def check_depth(text: str, value: object) -> None:
    """Raise InvalidArgument if ``value``, read from ``text``, nests deeper than a document may.

    Python's own limit is not used, because it depends on Python's version and on the program's recursion limit.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(value):
        raise InvalidArgument(f"lists and objects are nested more than {MAX_DEPTH} deep")


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects nest deeper than a document may."""
    level = [value] if isinstance(value, _NESTING) else []
    for _ in range(MAX_DEPTH):
        level = [
            v for one in level for v in (one.values() if isinstance(one, dict) else one) if isinstance(v, _NESTING)
        ]
        if not level:
            return False
    return True
