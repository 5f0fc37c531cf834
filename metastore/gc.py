"""gc: what nobody can reach any more is deleted, in bounded batches, by as many processes as like to.

A dropped entity older than the retention is first made unrestorable in a commit of its own (a
restore in the middle would otherwise revive a part). Then everything below it is deleted, leaves
first, itself last. History beyond ``keep_versions`` and older than the retention goes, and
whatever belongs to nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastore.port.backend import Backend

__all__ = ["Collected", "delete_steps", "delete_tree"]

_BATCH = 500


@dataclass(frozen=True)
class Collected:
    """What a gc removed: entities, versions from the history of those that stay, other operations.

    ``staged``: what was left behind under leases, and was handed over to be cleaned up.
    """

    entities: int
    versions: int
    operations: int
    staged: int = 0


def delete_tree(backend: Backend, entity_id: int) -> int:
    """Delete an entity that is purging and all below it; return how many were deleted.

    What another process deletes at this moment is left to it.
    """
    deleted = 0
    stack = [entity_id]
    tried: set[int] = set()
    while stack:
        children = [child for child, _ in backend.below(stack[-1], _BATCH)]
        if not children:
            deleted += backend.delete_entities([stack.pop()])
            continue
        gone = backend.delete_entities(children)
        deleted += gone
        if gone:
            continue
        deeper = next((c for c in children if c not in tried), None)
        if deeper is None:
            stack.pop()  # somebody else is at it
        else:
            tried.add(deeper)
            stack.append(deeper)
    return deleted


def delete_steps(backend: Backend, before: int, keep: int) -> tuple[int, int]:
    """Delete old history; return how many versions of what exists, and how many others."""
    after, versions, others = 0, 0, 0
    backend.forget(before)
    while True:
        last, some, more = backend.delete_steps(before, keep, after, 2 * _BATCH)
        versions, others = versions + some, others + more
        if last is None:
            return versions, others
        after = last
