"""Delete a whole subtree in batches, the root last."""

from __future__ import annotations

from metastore.port.upkeep import Upkeep

__all__ = ["delete_tree"]

_BATCH = 500
"""How many entities one statement deletes at most."""


def delete_tree(backend: Upkeep, entity_id: int) -> int:
    """Delete an entity that is purging and all below it; return how many were deleted.

    Rows that another process deletes at the same time are left to that process.
    """
    deleted = 0
    stack = [entity_id]
    tried: set[int] = set()
    while stack:
        children = [child for child, _ in backend.below(stack[-1], _BATCH)]
        if not children:
            deleted += _delete(backend, [stack.pop()])
            continue
        gone = _delete(backend, children)
        deleted += gone
        if gone:
            continue
        deeper = next((c for c in children if c not in tried), None)
        if deeper is None:
            stack.pop()  # another process deletes it at this moment
        else:
            tried.add(deeper)
            stack.append(deeper)
    return deleted


def _delete(backend: Upkeep, ids: list[int]) -> int:
    """Delete entities, their relations first: after the end itself no index would lead from it to them."""
    while backend.delete_relations(ids, _BATCH):
        pass
    return backend.delete_entities(ids)
