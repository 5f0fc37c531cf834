"""Ids of entities that a process reserves ahead, in blocks."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from metastore.clock import process_id

__all__ = ["ReservedIds"]


class _Source(Protocol):
    """What reserves ids: a backend."""

    def reserve_ids(self, count: int) -> list[int]: ...


class ReservedIds:
    """Ids that no other client gets. A forked child must not use those of its parent too."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._own = _Own(process_id(), [])

    def next(self, source: _Source) -> int:
        """Return an id. Most calls read nothing."""
        if self._own.process != process_id():
            self._own = _Own(process_id(), [])
        ids = self._own.ids
        while True:
            try:
                return ids.pop()
            except IndexError:  # another thread may take them all
                ids.extend(source.reserve_ids(self._block)[::-1])


class _Own(NamedTuple):
    process: int
    ids: list[int]
    """The next one last."""
