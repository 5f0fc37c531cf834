"""Delete a whole subtree in batches, the root last."""

from __future__ import annotations

from metastore.port.backend import Upkeep

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
            deleted += backend.delete_entities([stack.pop()])
            continue
        gone = backend.delete_entities(children)
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
