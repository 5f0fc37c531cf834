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
    """A relation between an object, the target, and what is attached to it: a tag, a policy, an owner, …"""

    id: int
    """The relation's own id, which its events carry."""
    kind: str
    """What is attached: ``tag``, ``policy``, ``user`` …"""
    name: str
    path: str
    """Its name and its path."""
    value: str | None
    column: str | None
    """The path of the target's column that it is on, as it is called now; None: the target itself."""
    target_kind: str
    target_path: str
    target_id: int
    inherited_from: str | None
    """The path of the ancestor, or of a column's table, that it was found on; None: it is the target's own."""
    created_by: str | None
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return _plain(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Attached:
        """Return what :meth:`to_dict` was called on."""
        return cls(**{**values, "created_at": datetime.fromisoformat(values["created_at"])})


@dataclass(frozen=True)
class Grant:
    """A privilege that a role has, or is denied, on an object and on all that is below it."""

    id: int
    role: str
    """The path of the role."""
    privilege: str
    effect: str
    """``allow`` or ``deny``."""
    kind: str
    path: str
    """The object's kind and path."""
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
