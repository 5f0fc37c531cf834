"""From rows of the operation table to history and change feed entries."""

from __future__ import annotations

import json
from collections.abc import Iterator

from metastore.backends.port import Backend, Step
from metastore.changes import decode
from metastore.entity import Change, Entity, Node, Owned, OwnedRecord, Record, Version, utc
from metastore.kinds import KINDS, OWNED_KINDS
from metastore.names import parse_path

__all__ = ["change_of", "entity_at", "steps_of", "version_of"]

_UNKNOWN = -1
"""The id of an ancestor in an entity that comes from history: no guard holds for it."""


def entity_at(step: Step) -> Entity | Owned | None:
    """Return what the entity was after ``step``; None for a kind that this program does not know."""
    kind, path = step.kind or "", step.path_after or step.path_before
    if step.doc is None or path is None or step.entity_id is None or step.version is None:
        return None
    names = parse_path(path)
    audit = (step.created_by, step.created_at or step.time, step.principal, step.time)
    if kind in OWNED_KINDS:
        owner = step.owner_id or 0
        owned = OwnedRecord(step.entity_id, owner, kind, names[-1], step.version, step.doc, *audit)
        return OWNED_KINDS[kind].row(owned)
    if kind not in KINDS:
        return None
    above = [Node(_UNKNOWN, "", name, 0, True, False) for name in names[:-1]]
    own = Node(step.entity_id, kind, names[-1], step.scope_version or 1, bool(step.in_use), False)
    return KINDS[kind].entity(Record((*above, own), step.version, step.doc, *audit))


def version_of(step: Step) -> Version:
    """Return ``step`` as an entry of an entity's history."""
    return Version(
        version=step.version or 0,
        operation_id=step.operation_id,
        principal=step.principal,
        time=utc(step.time),
        action=step.action,
        path_before=step.path_before,
        path_after=step.path_after,
        changes=decode(json.loads(step.changes or "[]")),
        entity=entity_at(step),
    )


def change_of(step: Step, position: str) -> Change:
    """Return ``step`` as an entry of the change feed."""
    return Change(**vars(version_of(step)), position=position, kind=step.kind or "", entity_id=step.entity_id or 0)


def steps_of(backend: Backend, entity_id: int, page_size: int = 500) -> Iterator[Step]:
    """Yield an entity's steps, oldest first."""
    after = 0
    while True:
        steps = backend.history(entity_id, after, page_size)
        yield from steps
        if len(steps) < page_size:
            return
        after = steps[-1].version or 0
