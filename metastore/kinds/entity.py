"""Entities, the steps of their history, and the entries of the change feed: frozen values that callers get.

An entity wraps the :class:`Record` that the database returned, and decodes a field at its first read. It also carries
the versions of the entities along its path. A manager that gets the entity back tries these versions first, which saves
a read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar
from uuid import UUID

from metastore.cached import cached_property
from metastore.kinds.change import EntityChange, encode
from metastore.kinds.field import DocField, decoded
from metastore.kinds.secret import masked, properties_shown, stored
from metastore.names import format_path
from metastore.plain import plain, read_only
from metastore.port.records import Origin, OwnedRecord, Record

__all__ = ["Change", "Entity", "Owned", "Version", "utc"]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AUDIT = ("created_by", "created_at", "modified_by", "modified_at")


def utc(micros: int) -> datetime:
    """Return the aware UTC time of ``micros`` microseconds since 1970, exactly."""
    return _EPOCH + timedelta(microseconds=micros)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, not {type(value).__name__}")
    return value


class _Stored:
    """An entity or an owned row: its version, its document, who created and changed it, and when."""

    record: Any
    doc_fields: ClassVar[Mapping[str, DocField]] = MappingProxyType({})
    """The kind's own fields by name, in the order of the class and of the document."""

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, DocField)}
        cls.doc_fields = MappingProxyType({**cls.doc_fields, **own})

    def __init__(self, record: Record | OwnedRecord) -> None:
        self.__dict__["record"] = record

    if TYPE_CHECKING:

        @property
        def id(self) -> int: ...

        @property
        def kind(self) -> str: ...

    @property
    def version(self) -> int:
        return int(self.record.version)

    def _read(self, decode: Callable[[], T]) -> T:
        """Return the result of ``decode``. Raises UnreadableRow if it fails."""
        return decoded(self, decode)

    def read_all(self) -> None:
        """Decode every field now. Raises UnreadableRow."""
        for name in ("properties", "comment", "created_at", "modified_at", *type(self).doc_fields):
            getattr(self, name)

    @cached_property
    def doc(self) -> Mapping[str, Any]:
        """The document in the database, as read-only JSON values. Raises UnreadableRow, as each field does."""
        return read_only(self._parsed)

    @cached_property
    def _parsed(self) -> Mapping[str, Any]:
        """The parsed document, which only the fields may read: unlike ``doc``, it can be changed. Raises UnreadableRow.

        A read-only copy takes as long to make as the parsing, so only ``doc`` makes one.
        """
        return self._read(lambda: _object(self.record.doc))

    @property
    def comment(self) -> str | None:
        comment: str | None = self._read(lambda: self._parsed["comment"])
        return comment

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return self._read(lambda: properties_shown(self._parsed["properties"]))

    @property
    def created_by(self) -> str | None:
        principal: str | None = self.record.created_by
        return principal

    @cached_property
    def created_at(self) -> datetime:
        return self._read(lambda: utc(self.record.created_at))

    @property
    def modified_by(self) -> str | None:
        principal: str | None = self.record.modified_by
        return principal

    @cached_property
    def modified_at(self) -> datetime:
        return self._read(lambda: utc(self.record.modified_at))

    common_fields: ClassVar[tuple[str, ...]] = ()
    """The names that ``to_dict`` shows besides the kind's own fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values, as ``--json`` prints it; ``ms.json_schema(kind)`` describes them."""
        common = {name: plain(getattr(self, name)) for name in self.common_fields}
        properties = {key: stored(value) for key, value in self.properties.items()}
        return {**common, "properties": properties, **self._own_fields()}

    def _own_fields(self) -> dict[str, Any]:
        return {name: plain(getattr(self, name)) for name in type(self).doc_fields}

    if not TYPE_CHECKING:  # a type checker must refuse an attribute that the class does not declare

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a {type(self).__name__} has no field {name!r}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is frozen; change it through its manager")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is frozen; change it through its manager")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.record,)


class Entity(_Stored):
    """One metadata object as it was at one version."""

    record: Record
    origin: Origin | None
    """The database that the entity comes from. None: unknown; then only the entity's id is used."""

    def __init__(self, record: Record, origin: Origin | None = None) -> None:
        self.__dict__.update(record=record, origin=origin)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.record, self.origin)

    common_fields: ClassVar[tuple[str, ...]] = (
        "kind",
        "path",
        "names",
        "id",
        "version",
        "scope_version",
        "comment",
        "properties",
        *_AUDIT,
    )

    @property
    def id(self) -> int:
        return self.record.chain[-1].id

    @property
    def kind(self) -> str:
        return self.record.chain[-1].kind

    @property
    def name(self) -> str:
        return self.record.chain[-1].name

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple([node.name for node in self.record.chain])

    @cached_property
    def path(self) -> str:
        return format_path(self.names)

    @property
    def scope_version(self) -> int:
        return self.record.chain[-1].scope_version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entity):
            return NotImplemented
        return self.id == other.id and self.names == other.names and self.record[1:] == other.record[1:]

    def __hash__(self) -> int:
        return hash((self.id, self.version))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, id={self.id}, version={self.version})"


class Owned(_Stored):
    """An owned row as it was at one version. It belongs to one entity and is deleted with it."""

    record: OwnedRecord
    common_fields: ClassVar[tuple[str, ...]] = ("kind", "name", "id", "version", "comment", "properties", *_AUDIT)

    @property
    def id(self) -> int:
        """Its number; 0 if a transaction returned it as new: the database draws it with the commit."""
        return self.record.id

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def name(self) -> str:
        return self.record.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Owned):
            return NotImplemented
        return self.record == other.record

    def __hash__(self) -> int:
        return hash((self.id, self.version))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, id={self.id}, version={self.version})"


@dataclass(frozen=True)
class Version:
    """One step of an entity's history. ``entity`` is its state after the step."""

    version: int
    operation_id: UUID
    principal: str | None
    time: datetime
    action: str
    path_before: str | None
    path_after: str | None
    changes: tuple[EntityChange, ...]
    entity: Entity | Owned | None
    reason: str | None = field(default=None, kw_only=True)
    """The reason that the caller gave, with ``reason=``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the step without its entity as plain JSON values, as ``metastore history --json`` prints it."""
        names = ("version", "action", "principal", "time", "operation_id", "path_before", "path_after")
        why = {} if self.reason is None else {"reason": self.reason}
        return {name: plain(getattr(self, name)) for name in names} | why | {"changes": plain(encode(self.changes))}

    def read_all(self) -> None:
        """Decode every field of the entity now. Raises UnreadableRow."""
        if self.entity is not None:
            self.entity.read_all()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Make the entity at its first use: most readers of a feed use few entities."""
            make = self.__dict__.get("_entity") if name == "entity" else None
            if make is None:
                raise AttributeError(f"a {type(self).__name__} has no field {name!r}")
            self.__dict__["entity"] = made = make()
            return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields and the entity: copies and pickles hold it, not the function that makes it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Change(Version):
    """One entry of the change feed: a version, its position in the feed, and the entity that it belongs to."""

    position: str
    kind: str
    entity_id: int
    other_path: str | None = None
    """For a relation: the path of the end that is not the object."""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain JSON values, as ``metastore changes --json`` prints it.

        ``document`` is the whole document after the change, with handles for encrypted properties; None if the change
        deleted it.
        """
        head = {"position": self.position, "kind": self.kind, "entity_id": self.entity_id}
        document = None if self.entity is None else json.loads(masked(self.entity.record.doc))
        other = {} if self.other_path is None else {"other_path": self.other_path}
        return {**head, **super().to_dict(), **other, "document": document}
