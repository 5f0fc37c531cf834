"""``python -m tests.checker.many``: a clean history of ten million operations, checked in bounded memory.

Then the same with a fault in its middle, which must be found. It prints how long each step took, and the most memory
that the JVM and the Python workers held meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from rich.console import Console

from metastore.checker.check import check
from metastore.spark.context import spark_context
from tests.checker.folders import write
from tests.checker.lanes import FAULTS

_GIB = 1 << 30


class Memory:
    """The most that the processes below this one have held, by the name of their program."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.5):
            for process in me.children(recursive=True):
                try:
                    name, held = process.name(), process.memory_info().rss
                except psutil.Error:
                    continue
                self.most[name] = max(self.most.get(name, 0), held)

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._over.set()
        self._thread.join()


def main() -> int:
    """Check; return 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(prog="tests.checker.many", description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--most", type=float, default=4.0, help="GiB that any process may hold")
    parser.add_argument("--faults", nargs="*", default=["stale read"], choices=list(FAULTS))
    parser.add_argument("--folder", help="where there is room: 1 GB for each million operations")
    chosen = parser.parse_args()
    console, memory, good = Console(), Memory(), True
    with spark_context("local[2]") as context, memory.watched():
        spark = SparkSession(context)
        spark.conf.set("spark.sql.shuffle.partitions", "16")
        for fault in [None, *chosen.faults]:
            good = _one(spark, console, chosen, fault) and good
            console.print({name: f"{held / _GIB:.2f} GiB" for name, held in memory.most.items()})
        spark.stop()
    return 0 if good and max(memory.most.values()) < chosen.most * _GIB else 1


def _one(spark: SparkSession, console: Console, chosen: argparse.Namespace, fault: str | None) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="metastore-many-", dir=chosen.folder))
    try:
        began = time.monotonic()
        write(spark, folder, chosen.operations, chosen.lanes, fault=fault)
        made = time.monotonic()
        checked = check(spark, folder)
        took = time.monotonic() - made
        console.print(
            f"{fault or 'clean'}: {checked.operations:,} operations and {checked.events:,} events, made in "
            f"{made - began:.0f} s, checked in {took:.0f} s ({checked.operations / took:,.0f}/s): {checked.counts}"
        )
        for finding in checked.findings[:3]:
            console.print(str(finding), highlight=False)
        return checked.clean if fault is None else FAULTS[fault][1] in checked.counts
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
