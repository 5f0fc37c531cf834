"""From rows of the operation table to history and change feed entries."""

from __future__ import annotations

import json
from collections.abc import Iterator

from metastore.kinds.change import decode
from metastore.kinds.entity import Change, Version, utc
from metastore.operation.outcome import entity_at
from metastore.port.backend import Reads
from metastore.port.records import Origin, Step
from metastore.port.unreadable import naming

__all__ = ["change_of", "steps_of", "version_of"]


def version_of(step: Step, origin: Origin) -> Version:
    """Return ``step`` as an entry of an entity's history. Raises UnreadableRow."""
    return naming(lambda: _version(step, origin), step.kind, step.entity_id, step.version)


def _version(step: Step, origin: Origin) -> Version:
    return Version(
        version=step.version or 0,
        operation_id=step.operation_id,
        principal=step.principal,
        time=utc(step.time),
        action=step.action,
        path_before=step.path_before,
        path_after=step.path_after,
        changes=decode(json.loads(step.changes or "[]")),
        entity=entity_at(step, origin=origin),
    )


def change_of(step: Step, position: str, origin: Origin) -> Change:
    """Return ``step`` as an entry of the change feed. Raises UnreadableRow."""
    version = naming(lambda: _version(step, origin), step.kind, step.entity_id, step.version, position)
    return Change(**vars(version), position=position, kind=step.kind or "", entity_id=step.entity_id or 0)


def steps_of(backend: Reads, entity_id: int, page_size: int = 500) -> Iterator[Step]:
    """Yield an entity's steps, oldest first."""
    after = 0
    while True:
        steps = backend.history(entity_id, after, page_size)
        yield from steps
        if len(steps) < page_size:
            return
        after = steps[-1].version or 0
