"""The changes that ``alter`` takes: each touches only the field that it names.

A change is a frozen value with a pure ``apply(doc, path)``. ``doc`` is the entity's JSON
document (``{"comment": …, "properties": {…}, …the kind's fields}``); ``apply`` changes the
draft in place, and raises the caller's error when it does not fit. A change says what is
wanted and not what results, so it can be applied again to a fresher document. That is how
conflicts merge.

Changes are written into history as JSON: ``encode`` and ``decode`` are each other's inverse. A change class gets its
JSON tag from its name, or from ``class AddPanel(EntityChange, tag="acme.AddPanel")``. To rename a class, keep its old
name as the tag, or write a migration.
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
    """The absence of an argument, where None means something."""

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
    """The oldest format that has this change, in this meaning."""
    measured: ClassVar[frozenset[str]] = frozenset()
    """The fields that the library takes from a clock: a repeat of the call has others, and is a repeat all the same."""
    _names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, tag: str | None = None) -> None:
        # set again, because a dataclass with slots creates its class twice
        cls.tag = tag or cls.__dict__.get("tag") or cls.__name__
        other = _registry.get(cls.tag)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two change classes have the tag {cls.tag!r}; give one of them another: tag=")
        _registry[cls.tag] = cls

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        """Change the draft ``doc`` of the entity at ``path`` in place, or raise."""
        raise InvalidArgument(f"{type(self).__name__} cannot be applied")

    def to_json(self) -> dict[str, Any]:
        """The fields that are set, as JSON values; override with ``from_json`` where a field is not one."""
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
        """The inverse of ``to_json``."""
        if list in map(type, fields.values()):  # copied only if needed: a feed is read faster without another dict
            fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return cls(**fields)


def change_class(tag: str) -> type[EntityChange] | None:
    """Return the class of the changes with this JSON tag, if this program knows it."""
    return _registry.get(tag)


def encode(changes: tuple[EntityChange, ...]) -> list[dict[str, Any]]:
    """Return ``changes`` as a JSON list."""
    return [{"change": c.tag, **c.to_json()} for c in changes]


def meant(changes: tuple[EntityChange, ...]) -> list[dict[str, Any]]:
    """Return ``changes`` as a caller meant them, as a JSON list: a repeat of the call has an equal one."""
    told = zip(changes, encode(changes), strict=True)
    return [{key: value for key, value in fields.items() if key not in change.measured} for change, fields in told]


@dataclasses.dataclass(frozen=True)
class UnknownChange(EntityChange):
    """A change that a newer program wrote into history; kept as it is."""

    fields: tuple[tuple[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return dict(self.fields)


def decode(changes: list[dict[str, Any]]) -> tuple[EntityChange, ...]:
    """Return the changes that ``encode`` wrote; what this program cannot read comes back as :class:`UnknownChange`."""
    return tuple([_decode_one(c) for c in changes])


def _decode_one(fields: dict[str, Any]) -> EntityChange:
    known = _registry.get(fields.get("change", ""))
    if known is not None:
        try:
            said = fields.copy()  # a change that cannot be read is kept as it is
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
    """Set one property. With ``expected``: only if that is its value now (None: only if absent).

    A mismatch raises VersionConflict, whose ``expected`` and ``found`` are the values.
    ``SetProperty("metadata_location", new, expected=old)`` is the pointer swap of a table format.
    """

    key: str
    value: str
    expected: str | _Unset | None = dataclasses.field(default=UNSET, kw_only=True)

    def __post_init__(self) -> None:
        # a secret is compared, kept in history and applied by other processes in its stored form
        if isinstance(self.value, Secret):
            object.__setattr__(self, "value", self.value.stored)
        if isinstance(self.expected, Secret):
            object.__setattr__(self, "expected", self.expected.stored)

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        key, value = clean_text(self.key, "a property's key"), property_text(self.value, self.key)
        if not key:
            raise InvalidArgument("a property's key must not be empty")
        before = doc["properties"].get(key)
        if self.expected is not UNSET and self.expected not in (before, as_shown(before)):
            where, expected, stored = format_path(path), as_shown(self.expected), as_shown(before)
            raise VersionConflict(
                where,
                expected,
                stored,
                f"{where}: property {key!r} was expected to be {shown(expected)}, found {stored!r}; "
                "load the entity and decide again",
            )
        doc["properties"][key] = kept(value, before)


@dataclasses.dataclass(frozen=True)
class RemoveProperty(EntityChange):
    """Remove one property; one that is absent stays so."""

    key: str

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["properties"].pop(clean_text(self.key, "a property's key"), None)


def property_text(value: object, key: object) -> str:
    """Return a property's value as it is stored, or raise InvalidArgument."""
    if type(value) is str and value.isascii():  # most values end here, and need no text for a message
        return value
    return clean_text(value, f"the property {shown(key)}")


def not_found(path: tuple[str, ...], what: str, name: str) -> EntityNotFound:
    """The error of a change that names a part (column, index) which the entity does not have."""
    where = format_path(path)
    return EntityNotFound(f"{where}.{name}", f"{where} has no {what} {name}; load it and look again")
