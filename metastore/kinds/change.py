"""The changes that ``alter`` takes: each touches only the field that it names.

A change is a frozen value with a pure ``apply(doc, path)``. ``doc`` is the entity's JSON document (``{"comment": …,
"properties": {…}, …the kind's fields}``); ``apply`` edits this draft in place, and raises the caller's error if the
change does not fit. A change describes an edit, not the document that results, so it can be applied again to a newer
document. This is how conflicts merge.

History stores changes as JSON: ``decode`` is the inverse of ``encode``. A change class gets its JSON tag from its name,
or from ``class AddPanel(EntityChange, tag="acme.AddPanel")``. To rename a class, keep its old name as the tag, or write
a migration.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Final

from metastore.arguments import shown
from metastore.errors import EntityNotFound, InvalidArgument, VersionConflict
from metastore.kinds.secret import Secret, as_shown, kept
from metastore.names import clean_text, format_path

__all__ = [
    "UNSET",
    "EntityChange",
    "RemoveProperty",
    "SetComment",
    "SetProperty",
    "change_class",
    "decode",
    "encode",
    "meant",
]

Doc = dict[str, Any]


class _Unset:
    """A marker for an argument that was not given, because None has a meaning of its own."""

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


_registry: dict[str, type[EntityChange]] = {}


@dataclasses.dataclass(frozen=True)
class EntityChange:
    """The base of every change. A subclass is a frozen dataclass that overrides ``apply``."""

    tag: ClassVar[str] = ""
    since: ClassVar[int] = 1
    """The oldest format of changes that has this change with this meaning."""
    measured: ClassVar[frozenset[str]] = frozenset()
    """The fields that the library fills from a clock: a repeat of a call has other values, but is still a repeat."""
    _names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, tag: str | None = None) -> None:
        # the tag is set again, because a dataclass with slots creates its class twice
        cls.tag = tag or cls.__dict__.get("tag") or cls.__name__
        other = _registry.get(cls.tag)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two change classes have the tag {cls.tag!r}; give one of them another: tag=")
        _registry[cls.tag] = cls

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        """Change the draft ``doc`` of the entity at ``path`` in place, or raise."""
        raise InvalidArgument(f"{type(self).__name__} cannot be applied")

    def to_json(self) -> dict[str, Any]:
        """Return the set fields as JSON. Override this and ``from_json`` if a field is not a JSON value."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name in self._field_names()
            if (value := getattr(self, name)) is not UNSET
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain JSON values, ``{"change": "SetComment", …}``; ``ms.change_from_dict`` reads it."""
        return {"change": self.tag, **self.to_json()}

    @classmethod
    def _field_names(cls) -> tuple[str, ...]:
        if "_names" not in cls.__dict__:
            cls._names = tuple([f.name for f in dataclasses.fields(cls)])
        return cls._names

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> EntityChange:
        """Return the change that ``to_json`` wrote."""
        if list in map(type, fields.values()):  # copied only if needed, because that makes reading a feed faster
            fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return cls(**fields)


def change_class(tag: str) -> type[EntityChange] | None:
    """Return the class of the changes with this JSON tag, if this program knows it."""
    return _registry.get(tag)


def encode(changes: tuple[EntityChange, ...]) -> list[dict[str, Any]]:
    """Return ``changes`` as a JSON list."""
    return [{"change": c.tag, **c.to_json()} for c in changes]


def meant(changes: tuple[EntityChange, ...]) -> list[dict[str, Any]]:
    """Return ``changes`` as a JSON list without their ``measured`` fields: a repeat of the call has an equal list."""
    told = zip(changes, encode(changes), strict=True)
    return [{key: value for key, value in fields.items() if key not in change.measured} for change, fields in told]


@dataclasses.dataclass(frozen=True)
class UnknownChange(EntityChange):
    """A change that a newer program wrote into history. It is kept unchanged."""

    fields: tuple[tuple[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return dict(self.fields)


def decode(changes: list[dict[str, Any]]) -> tuple[EntityChange, ...]:
    """Return the changes that ``encode`` wrote. An unreadable change becomes an :class:`UnknownChange`."""
    return tuple([_decode_one(c) for c in changes])


def _decode_one(fields: dict[str, Any]) -> EntityChange:
    known = _registry.get(fields.get("change", ""))
    if known is not None:
        try:
            said = fields.copy()  # a copy, so that ``fields`` stays whole if the change cannot be read
            del said["change"]
            return known.from_json(said)
        except Exception:  # noqa: BLE001, S110  (a newer program may write other fields; readers must not stop)
            pass
    return UnknownChange(tuple(fields.items()))


@dataclasses.dataclass(frozen=True)
class SetComment(EntityChange):
    """Set the comment; None removes it."""

    text: str | None

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["comment"] = None if self.text is None else clean_text(self.text, "a comment")


@dataclasses.dataclass(frozen=True)
class SetProperty(EntityChange):
    """Set one property. With ``expected``: only if the property has this value now (None: only if it is absent).

    Otherwise raises VersionConflict, whose ``expected`` and ``found`` are the two values.
    ``SetProperty("metadata_location", new, expected=old)`` is the pointer swap of a table format.
    """

    key: str
    value: str
    expected: str | _Unset | None = dataclasses.field(default=UNSET, kw_only=True)

    def __post_init__(self) -> None:
        # comparison, history and other processes all use the stored form of a secret
        if isinstance(self.value, Secret):
            object.__setattr__(self, "value", self.value.stored)
        if isinstance(self.expected, Secret):
            object.__setattr__(self, "expected", self.expected.stored)

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        key, value = clean_text(self.key, "a property's key"), property_text(self.value, self.key)
        if not key:
            raise InvalidArgument("a property's key must not be empty")
        if self.expected is not None and self.expected is not UNSET:
            clean_text(self.expected, f"the expected value of the property {shown(self.key)}")
        before = doc["properties"].get(key)
        if self.expected is not UNSET and self.expected not in (before, as_shown(before)):
            where, expected, stored = format_path(path), as_shown(self.expected), as_shown(before)
            raise VersionConflict(
                where,
                expected,
                stored,
                f"{where}: property {shown(key)} was expected to be {shown(expected)}, found {shown(stored)}; "
                "load the entity and decide again",
            )
        doc["properties"][key] = kept(value, before)


@dataclasses.dataclass(frozen=True)
class RemoveProperty(EntityChange):
    """Remove one property. An absent property is not an error."""

    key: str

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["properties"].pop(clean_text(self.key, "a property's key"), None)


def property_text(value: object, key: object) -> str:
    """Return a property's value in stored form, or raise InvalidArgument."""
    if type(value) is str and value.isascii():  # most values return here, before any text for a message is made
        return value
    return clean_text(value, f"the property {shown(key)}")


def not_found(path: tuple[str, ...], what: str, name: str) -> EntityNotFound:
    """Return the error of a change that names a part (a column, an index) that the entity does not have."""
    where = format_path(path)
    return EntityNotFound(f"{where}.{name}", f"{where} has no {what} {name}; load it and look again")
