"""What a caller gets: entities, their history and the change feed's entries, all frozen.

An entity wraps the :class:`Record` that the database returned and decodes a field when it is
first asked for. It also carries the versions that were seen along its path: given back to a
manager they are the first guess that saves a read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn
from uuid import UUID

from metastore.changes import EntityChange
from metastore.names import format_path

__all__ = ["Change", "Entity", "Node", "Origin", "Owned", "OwnedRecord", "Record", "Version", "utc"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc(micros: int) -> datetime:
    """Return the aware UTC time of ``micros`` microseconds since 1970, exactly."""
    return _EPOCH + timedelta(microseconds=micros)


class Node(NamedTuple):
    """One step of a path as it was seen: the guard row's content."""

    id: int
    kind: str
    name: str
    scope_version: int
    in_use: bool
    fold: bool


class Record(NamedTuple):
    """An entity as it was read: its path (itself last), its version and its document."""

    chain: tuple[Node, ...]
    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int
    live: bool = True
    """False: it was dropped when it was read, and is no guess for anything but its id."""


class OwnedRecord(NamedTuple):
    """An owned row as it was read."""

    id: int
    owner_id: int
    kind: str
    name: str
    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int


@dataclass(slots=True, eq=False)
class Origin:
    """Where an entity comes from: which database, and whether what the entity says is committed there.

    All entities that a transaction returns share one origin. It becomes committed when the transaction commits, and
    stays uncommitted if the transaction is refused or its outcome is unknown.
    """

    database: str
    committed: bool = True


class _Stored:
    """What every stored thing shows: its version, its document, who made and changed it, and when."""

    record: Any
    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """The kind's own fields: how each is decoded from the document, when first asked for."""

    def __init__(self, record: Record | OwnedRecord) -> None:
        self.__dict__["record"] = record

    @property
    def version(self) -> int:
        return int(self.record.version)

    @cached_property
    def doc(self) -> Mapping[str, Any]:
        """The document that the database holds, as JSON values."""
        value: dict[str, Any] = json.loads(self.record.doc)
        return MappingProxyType(value)

    @property
    def comment(self) -> str | None:
        comment: str | None = self.doc["comment"]
        return comment

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return MappingProxyType(self.doc["properties"])

    @property
    def created_by(self) -> str | None:
        principal: str | None = self.record.created_by
        return principal

    @cached_property
    def created_at(self) -> datetime:
        return utc(self.record.created_at)

    @property
    def modified_by(self) -> str | None:
        principal: str | None = self.record.modified_by
        return principal

    @cached_property
    def modified_at(self) -> datetime:
        return utc(self.record.modified_at)

    def __getattr__(self, name: str) -> Any:
        decode = type(self).doc_fields.get(name)
        if decode is None:
            raise AttributeError(f"a {type(self).__name__} has no field {name!r}")
        value = self.__dict__[name] = decode(self.doc[name])
        return value

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
    """None: it is unknown, so that nothing rests on the entity but its id."""

    def __init__(self, record: Record, origin: Origin | None = None) -> None:
        self.__dict__.update(record=record, origin=origin)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.record, self.origin)

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
    """An owned row as it was at one version: it belongs to one entity and goes with it."""

    record: OwnedRecord

    @property
    def id(self) -> int:
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
    """One step of an entity's history. ``entity`` is what it was after the step."""

    version: int
    operation_id: UUID
    principal: str | None
    time: datetime
    action: str
    path_before: str | None
    path_after: str | None
    changes: tuple[EntityChange, ...]
    entity: Entity | Owned | None


@dataclass(frozen=True)
class Change(Version):
    """One entry of the change feed: a version, where it stands in the feed, and whose it is."""

    position: str
    kind: str
    entity_id: int
