"""One row of the feed, in the form that the checker reads."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Event"]


class Event(NamedTuple):
    """One row of the feed. ``asked``: the action that its client recorded, if any. ``wrong``: see Documents."""

    seq: int
    operation_id: str
    principal: str | None
    kind: str
    action: str
    entity_id: int
    owner_id: int | None
    version: int
    path_before: str | None
    path_after: str | None
    asked: str | None = None
    wrong: str | None = None
    other_id: int | None = None
    """The end that a relation leads to; ``owner_id`` is the end that it goes from."""
    other_path: str | None = None
    scope_version: int | None = None
    """The scope version of the entity after the event."""
    fences: str | None = None
    """The note of the commit: see :mod:`metastore.port.note`."""

    def __str__(self) -> str:
        path = self.path_after or self.path_before
        who = self.principal or f"operation {self.operation_id}"
        return (
            f"{who}: {self.action} {self.kind} {path} (entity {self.entity_id}), version {self.version} at {self.seq}"
        )
