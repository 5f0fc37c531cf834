"""Say that something is being dropped in steps, where a call did not find it, or did not get its name.

Nothing here runs on the way of a call that succeeds: what is dropping is not live, so every read and every guard fails
as for something that was dropped. Only then these questions are asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore.errors import DropPending
from metastore.kinds.registry import KINDS, kind_named
from metastore.names import format_path
from metastore.operation.guards import key_under
from metastore.port.backend import Reads
from metastore.port.commit import DROPPING, Commit, Insert, Update
from metastore.port.records import Lookup, Node

__all__ = ["pending_above", "pending_at", "pending_name", "pending_named"]


def pending_at(backend: Reads, where: Lookup, nodes: Sequence[Node]) -> DropPending | None:
    """Return the error for a path that ends after ``nodes``, if what comes next on it is being dropped."""
    at = len(nodes)
    if at >= len(where.names):
        return None
    above = nodes[-1] if nodes else where.start
    path = format_path(([n.name for n in nodes] if nodes else []) + [where.names[at]])
    return pending_named(backend, above.id, where.families[at], key_under(above, where.names[at]), path)


def pending_named(backend: Reads, parent_id: int, family: str, key: str, path: str) -> DropPending | None:
    """Return the error for a name that something has which is being dropped; ``path`` is what the error says."""
    for kind in [kind for kind in KINDS.values() if kind.family == family]:
        for row in backend.children(parent_id, kind.name, family, DROPPING, (key, 0), 1, ()).rows:
            if row.key == key:
                return _error(backend, row.node.id, row.version, path)
    return None


def pending_above(backend: Reads, chain: Sequence[Node]) -> DropPending | None:
    """Return the error for an entity that is not live, if it or something above it is being dropped."""
    for at, known in enumerate(backend.by_id([node.id for node in chain])):
        if known is not None and known.state == DROPPING:
            path = format_path([node.name for node in chain[: at + 1]])
            return _error(backend, chain[at].id, known.record.version, path)
    return None


def pending_name(backend: Reads, commit: Commit) -> DropPending | None:
    """Return the error for a commit that did not get a name which seemed to be free, if it is that of a drop."""
    for write in commit.writes:
        path = write.event.path_after or ""
        if isinstance(write, Insert):
            pending = pending_named(backend, write.parent_id, write.family, write.key, path)
        elif isinstance(write, Update) and write.place is not None:
            family = kind_named(write.event.kind).family
            pending = pending_named(backend, write.place.parent_id, family, write.place.key, path)
        else:
            pending = None
        if pending is not None:
            return pending
    return None


def _error(backend: Reads, entity_id: int, version: int, path: str) -> DropPending | None:
    """Return the error that names the operation; None: the entity is gone by now, or back."""
    steps = backend.history(entity_id, version - 1, 1)
    return DropPending(steps[0].operation_id, path=path) if steps else None
