"""Threads of the console's own: pages that take long delay no call of the API, and too many of them are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["Busy", "Workers"]

T = TypeVar("T")

_THREADS: Final = 4
"""How many pages are made at once. Each holds at most one of the store's ten connections."""
_WAITING: Final = 100
"""How many pages wait for a thread at most."""


class Busy(Exception):
    """Too many pages wait for a thread."""


class Workers:
    """A few threads, and a bounded queue in front of them. It belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "metastore-console")
        self._inside = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread. Raises Busy, and the errors of ``work``."""
        if self._inside >= _THREADS + _WAITING:
            raise Busy
        self._inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._inside -= 1

    def close(self) -> None:
        """Start no more pages."""
        self._threads.shutdown(wait=False, cancel_futures=True)
