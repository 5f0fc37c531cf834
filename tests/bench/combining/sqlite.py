"""Sixteen threads of one process that write to SQLite, with group commit and without, in turns."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import metastore as ms

__all__ = ["THREADS", "written_per_s"]

THREADS = 16


def written_per_s(folder: Path, length: float, *, together: bool) -> float:
    """Return how many alters per second the threads make, each of a table of its own."""
    folder.mkdir(parents=True)
    with ms.open(f"sqlite:///{folder}/x.db") as store:
        backend: Any = store._session.backend
        if not together:
            backend._group.run = backend._group._alone  # as before: each waits for SQLite's lock by itself
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        tables = [store.tables.create(f"m.c.s.t{n}") for n in range(THREADS)]
        done, ready = [0] * THREADS, threading.Barrier(THREADS)

        def work(number: int) -> None:
            table = tables[number]
            ready.wait()
            ends = time.monotonic() + length
            while time.monotonic() < ends:
                table = store.tables.alter(table, ms.SetProperty("x", str(done[number])))
                done[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.verify() == []
    return sum(done) / length
