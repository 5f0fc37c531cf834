"""Ids of entities that a process reserves ahead, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metastore.clock import process_id

__all__ = ["ReservedIds"]


class ReservedIds:
    """Ids that no other client gets. A forked child must not use those of its parent too."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._own = _Own(process_id(), [])

    def next(self, reserve: Callable[[int], list[int]]) -> int:
        """Return an id; ``reserve`` is the backend's. Most calls read nothing."""
        if self._own.process != process_id():
            self._own = _Own(process_id(), [])
        ids = self._own.ids
        while True:
            try:
                return ids.pop()
            except IndexError:  # another thread may take them all
                ids.extend(reserve(self._block)[::-1])


class _Own(NamedTuple):
    process: int
    ids: list[int]
    """The next one last."""
