"""Processes that come to a database at the same moment."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier

import metastore as ms

__all__ = ["Crowd"]

_SPAWN = multiprocessing.get_context("spawn")
_barriers: list[Barrier] = []


def _begin(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _migrate(url: str) -> str:
    _barriers[0].wait(60)
    return _outcome(url, migrate=True)


def _open(url: str) -> str:
    _barriers[0].wait(60)
    return _outcome(url, migrate=False)


def _outcome(url: str, *, migrate: bool) -> str:
    try:
        if migrate:
            ms.migrate(url)
        with ms.open(url) as store:
            store.metalakes.create("lake", if_exists="return")
    except ms.MetastoreError as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


class Crowd:
    """Some processes; each method lets all of them do one thing at once and returns what came of it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._executor = ProcessPoolExecutor(size, _SPAWN, _begin, (_SPAWN.Barrier(size),))

    def migrate(self, url: str) -> list[str]:
        """Migrate the database, and write to it."""
        return list(self._executor.map(_migrate, [url] * self._size))

    def open(self, url: str) -> list[str]:
        """Open the database, and write to it."""
        return list(self._executor.map(_open, [url] * self._size))

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown()
