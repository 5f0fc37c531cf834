"""One client of one tree. It takes the library from PYTHONPATH, and works on command: a JSON line in, a JSON line out.

It uses nothing but the public surface, so that the same file runs with any commit.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import metastore as ms

COLUMNS = [
    ms.Column(f"column_{n}", kind) for n, kind in enumerate(("long", "string", "timestamp(6)", "double", "date") * 2)
]
HOT = "lake.sales.hot.counter"
_numbers = itertools.count()


def _name() -> str:
    return f"t_{time.time_ns()}_{next(_numbers)}"


def _alter(store: ms.Store, count: int) -> Callable[[], None]:
    table = store.tables.create(f"lake.sales.s.{_name()}", columns=COLUMNS)

    def work() -> None:
        held = table
        for n in range(count):
            held = store.tables.alter(held, ms.SetProperty("turn", str(n)))

    return work


def _create(store: ms.Store, count: int) -> Callable[[], None]:
    parent = store.schemas.load("lake.sales.s")

    def work() -> None:
        for _ in range(count):
            store.tables.create(_name(), parent=parent, columns=COLUMNS)

    return work


def _drop(store: ms.Store, count: int) -> Callable[[], None]:
    tables = [store.tables.create(f"lake.sales.s.{_name()}", columns=COLUMNS) for _ in range(count)]

    def work() -> None:
        for table in tables:
            store.tables.drop(table)

    return work


def _load(store: ms.Store, count: int) -> Callable[[], None]:
    path = store.tables.create(f"lake.sales.s.{_name()}", columns=COLUMNS).path

    def work() -> None:
        for _ in range(count):
            store.tables.load(path)

    return work


def _hot(store: ms.Store, count: int) -> Callable[[], None]:
    def work() -> None:
        for n in range(count):
            store.tables.alter(HOT, ms.SetProperty(f"p{n % 50}", _name()))

    return work


WORK = {"alter": _alter, "create": _create, "drop": _drop, "load": _load, "hot": _hot}


def main(url: str) -> None:
    """Say which library is in use; then work until the input ends."""
    with ms.open(url, principal="bench") as store:
        print(json.dumps({"library": str(Path(ms.__file__).parent)}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            work = WORK[order["verb"]](store, order["count"])
            gc.collect()
            gc.disable()
            start, cpu = time.perf_counter(), time.process_time()
            work()
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            gc.enable()
            print(json.dumps({"seconds": seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
