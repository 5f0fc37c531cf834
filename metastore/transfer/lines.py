"""The lines of an export as values, and how to write them. :mod:`metastore.transfer.parser` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from metastore.kinds.kind import to_json
from metastore.port.restore import COLUMNS

__all__ = [
    "AUDIT",
    "FORMAT",
    "MARKS",
    "OPERATION",
    "ROW",
    "Body",
    "EntityLine",
    "Footer",
    "Header",
    "Line",
    "Numbers",
    "OperationLine",
    "OwnedLine",
    "RelationLine",
    "default_under",
    "entity_row",
    "write",
]

FORMAT: Final = 1
"""The format of the files that this program writes, and the only one that it reads."""

AUDIT: Final = ("created_by", "created_at", "modified_by", "modified_at")
OPERATION: Final = COLUMNS["operation"]
ROW: Final = ("id", "version", "parent_id", "key", "fold", "state", "scope_version")
MARKS: Final = ("dropped_at", "mark", "marked_at", "marked_until", "quiet_until")


class Numbers(NamedTuple):
    """The counters of a database: last id, last position, and the position and time up to which gc removed history."""

    id: int
    seq: int
    collected: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. ``numbers`` come with ids."""

    root: tuple[str, ...] | None
    ids: bool
    history: bool
    position: str | None
    """The position from which to follow the feed after this export; None: the export could not find it out."""
    time: str
    version: str
    numbers: Numbers | None

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        fields = {name: getattr(self, name) for name in ("root", "ids", "history", "position", "time", "version")}
        numbers = None if self.numbers is None else self.numbers._asdict()
        return {"metastore": "export", "format": FORMAT, **fields, "numbers": numbers}


class EntityLine(NamedTuple):
    """An entity. ``row``: the columns in ``ROW`` and ``MARKS``, such as its id; empty in an export without ids."""

    names: tuple[str, ...]
    under: tuple[str, ...]
    """The families of the names before the last."""
    family: str
    kind: str
    in_use: bool
    doc: Mapping[str, Any]
    audit: Mapping[str, Any]
    row: Mapping[str, Any]


class OwnedLine(NamedTuple):
    """A row that the entity above it in the file owns."""

    kind: str
    name: str
    doc: Mapping[str, Any]
    audit: Mapping[str, Any]
    id: int | None
    version: int | None


class RelationLine(NamedTuple):
    """A relation from the entity above it in the file. ``row``: in an export with ids, the other columns of its row."""

    kind: str
    to: tuple[str, ...] | None
    """The names of the other end in the file; None: readers of the export do not see the relation."""
    to_kind: str | None
    column: tuple[str, ...] | None
    value: str
    audit: Mapping[str, Any]
    row: Mapping[str, Any]


class OperationLine(NamedTuple):
    """A row of the operation table, its columns in the order of :data:`OPERATION`."""

    row: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """The last line."""

    entities: int
    owned: int
    operations: int
    hash: str
    checksum: str
    relations: int = 0
    header: str | None = None
    """The digest of the header line; None: an earlier release wrote the file."""

    @property
    def lines(self) -> int:
        """The number of lines in the file."""
        return self.entities + self.owned + self.relations + self.operations + 2


Body = EntityLine | OwnedLine | RelationLine | OperationLine
Line = Body | Footer


@lru_cache(64)
def default_under(root: tuple[str, ...] | None, depth: int) -> tuple[str, ...]:
    """Return the usual families of ``depth`` names. The first name is below the parent of ``root``."""
    above = len(root or ("",)) - 1
    return (("metalake", "catalog", *("schema",) * depth)[min(above, 2) :])[:depth]


def write(line: Header | Line, root: tuple[str, ...] | None) -> bytes:
    """Return a line with its line feed. It is ASCII, and equal for equal content."""
    if isinstance(line, Header):
        value: dict[str, Any] = line.as_json()
    elif isinstance(line, EntityLine):
        value = {"path": line.names, "family": line.family, "kind": line.kind, "in_use": line.in_use, "doc": line.doc}
        if line.under != default_under(root, len(line.under)):
            value["under"] = line.under
        value |= {**line.audit, **line.row}
    elif isinstance(line, OwnedLine):
        value = {"owned": line.kind, "name": line.name, "doc": line.doc, **line.audit}
        if line.id is not None:
            value |= {"id": line.id, "version": line.version}
    elif isinstance(line, RelationLine):
        ends = {"relation": line.kind, "to": line.to, "to_kind": line.to_kind}
        value = {**ends, "column": line.column, "value": line.value, **line.audit, **line.row}
    elif isinstance(line, OperationLine):
        value = {name: v for name, v in zip(OPERATION, line.row, strict=True) if v is not None}
    else:
        counts = {"entities": line.entities, "owned": line.owned, "relations": line.relations}
        counts["operations"] = line.operations
        value = {"end": True, **counts, "hash": line.hash, "checksum": line.checksum}
        if line.header is not None:
            value["header"] = line.header
    return (to_json(value) + "\n").encode()


def entity_row(values: Sequence[Any]) -> dict[str, Any]:
    """Return the columns of an entity line with ids, without those that are null."""
    row = dict(zip((*ROW, *MARKS), values, strict=True))
    return {name: value for name, value in row.items() if value is not None}
