"""A relation as callers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from metastore.kinds.entity import utc
from metastore.names import format_path
from metastore.plain import plain
from metastore.port.records import Node
from metastore.port.relations import RelationRecord

__all__ = ["Attached", "Grant", "attached"]


@dataclass(frozen=True)
class Attached:
    """A relation between a target (the object) and an attached entity: a tag, a policy, an owner, …"""

    id: int
    """The relation's own id, which is in its events; 0 if a transaction returned it as new."""
    kind: str
    """The kind of the attached entity: ``tag``, ``policy``, ``user`` …"""
    name: str
    path: str
    """The name and the path of the attached entity."""
    value: str | None
    column: str | None
    """The present path of the target's column that has the relation. None: the target itself has it."""
    target_kind: str
    target_path: str
    target_id: int
    inherited_from: str | None
    """The path of the ancestor, or of the column's table, from which the target inherits the relation. None: the
    relation is the target's own.
    """
    created_by: str | None
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return _plain(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Attached:
        """Return the relation that :meth:`to_dict` made these values from."""
        return cls(**{**values, "created_at": datetime.fromisoformat(values["created_at"])})


@dataclass(frozen=True)
class Grant:
    """A privilege that a role has, or is denied, on an object and on everything below it."""

    id: int
    role: str
    """The path of the role."""
    privilege: str
    effect: str
    """``allow`` or ``deny``."""
    kind: str
    path: str
    """The kind and the path of the object."""
    created_by: str | None
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return _plain(self)


def attached(
    row: RelationRecord,
    target: Sequence[Node],
    other: Sequence[Node],
    column: Sequence[str] | None = None,
    inherited_from: str | None = None,
) -> Attached:
    """Return a relation between the entities at the ends of two chains."""
    return Attached(
        id=row.id,
        kind=other[-1].kind,
        name=other[-1].name,
        path=format_path([n.name for n in other]),
        value=row.value or None,
        column=None if column is None else format_path(column),
        target_kind=target[-1].kind,
        target_path=format_path([n.name for n in target]),
        target_id=target[-1].id,
        inherited_from=inherited_from,
        created_by=row.created_by,
        created_at=utc(row.created_at),
    )


def _plain(value: Any) -> dict[str, Any]:
    values: Mapping[str, Any] = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return dict(values)
