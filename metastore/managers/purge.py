"""Delete whole subtrees in batches, their roots last."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from metastore.errors import MetastoreError
from metastore.port.upkeep import Upkeep

_LOG: Final = logging.getLogger("metastore")
_BATCH = 500
"""How many entities one statement deletes at most."""


@contextmanager
def left_to_gc() -> Iterator[None]:
    """Leave the rows of a committed purge to gc if they cannot be deleted now.

    An error would tell the caller that nothing was written.
    """
    try:
        yield
    except MetastoreError as error:
        _LOG.info("gc will delete the rows of what was purged: %s", error)


def delete_trees(backend: Upkeep, roots: Sequence[int]) -> int:
    """Delete entities that are purging and all below them; return how many were deleted.

    The function goes down in batches, and asks for the children of a whole batch at once. If another process deletes
    rows of a batch at the same time, this call skips the batch, and deletes the remaining roots one by one.
    """
    deleted = 0
    stack: list[Sequence[int]] = [roots] if roots else []
    while stack:
        if children := backend.below(stack[-1], _BATCH):
            stack.append(children)
            continue
        gone = _delete(backend, stack.pop())
        deleted += gone
        if not gone:  # another process deletes this tree, and goes on with its rest
            return deleted + sum(delete_trees(backend, [one]) for one in roots if len(roots) > 1)
    return deleted


def _delete(backend: Upkeep, ids: Sequence[int]) -> int:
    """Delete entities, their relations first: once the entity is gone, no index leads to its relations."""
    while backend.delete_relations(ids, _BATCH):
        pass
    return backend.delete_entities(ids)
