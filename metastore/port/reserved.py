"""Ids that are reserved in advance, for entities whose id is needed before the commit."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from metastore.clock import process_id

_BLOCK: Final = 64
"""How many ids are reserved at once."""


class _Database(Protocol):
    def reserve_ids(self, count: int) -> list[int]: ...


class ReservedIds:
    """Ids that no other client gets; most calls need no query. A forked child uses none of its parent's ids."""

    def __init__(self) -> None:
        self._block = _Block(process_id(), [])

    def clear(self) -> None:
        """Forget the reserved ids."""
        self._block = _Block(process_id(), [])

    def next(self, database: _Database) -> int:
        """Return the next id."""
        while True:
            if self._block.process != process_id():
                self._block = _Block(process_id(), [])
            try:
                return self._block.ids.pop()
            except IndexError:  # another thread may take the last ids
                self._block.ids.extend(database.reserve_ids(_BLOCK)[::-1])


class _Block(NamedTuple):
    process: int
    ids: list[int]
    """The ids in descending order: ``pop`` takes the next one from the end."""
