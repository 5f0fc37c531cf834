"""Measure reads through the cache beside plain ones: ``python -m tests.bench.cache``.

One process on PostgreSQL, as a user calls it: ``store.tables.load(path)``, then its columns are used. The two stores
take turns, so that a ratio holds on a machine that does other work too. The hot set is in memory, nobody writes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

import metastore as ms
from metastore.store import Store
from tests.bench import cache_leases
from tests.bench.core.setting import Setting, new_lake
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import interleaved, ratios, seconds

BARS = {
    "validated_vs_plain_read": Bar(">=", 2.0),
    "validated_16_threads_vs_plain": Bar(">=", 6.0),
    "validated_10_columns_vs_plain": Bar(">=", 1.0),
    "plain_reads_per_s": reported,
    "plain_16_threads_reads_per_s": reported,
    "validated_reads_per_s": reported,
    "validated_16_threads_reads_per_s": reported,
    **cache_leases.BARS,
}
TABLES, READS, THREADS = 50, 500, 16


def main() -> int:
    """Print the table, write build/bench/cache.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cache", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the reads, three turns: to see that all works")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    setting = Setting(Figures("cache", BARS), console, arguments.quick)
    began = time.monotonic()
    with setting.closing:
        url = new_lake(setting.durable, "wide", "narrow")
        with (
            ms.open(url, pool_size=THREADS) as plain,
            ms.open(url, pool_size=THREADS, cache=ms.Cache("validate")) as kept,
        ):
            _fill(plain)
            _measure(setting, plain, kept)
        cache_leases.measure(setting, url)
    setting.figures.show(console)
    console.print(f"{setting.figures.write(keep=False)}; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _fill(store: Store) -> None:
    for schema, count in (("wide", 100), ("narrow", 10)):
        columns = [ms.Column(f"column_{n}", "string", comment="what it holds") for n in range(count)]
        store.tables.create_many(f"lake.sales.{schema}", [{"name": f"t{n}", "columns": columns} for n in range(TABLES)])


def _measure(setting: Setting, plain: Store, kept: Store) -> None:
    figures, reads = setting.figures, setting.count(READS)
    for schema, threads, ratio, names in (
        ("wide", 1, "validated_vs_plain_read", ("plain_reads_per_s", "validated_reads_per_s")),
        (
            "wide",
            THREADS,
            "validated_16_threads_vs_plain",
            ("plain_16_threads_reads_per_s", "validated_16_threads_reads_per_s"),
        ),
        ("narrow", 1, "validated_10_columns_vs_plain", ()),
    ):
        paths = [f"lake.sales.{schema}.t{n % TABLES}" for n in range(reads)]
        variants = {"plain": _rate(plain, paths, threads), "kept": _rate(kept, paths, threads)}
        found = interleaved(variants, setting.runs)
        figures.record(ratio, ratios(found["kept"], found["plain"]))
        for name, variant in zip(names, variants, strict=False):
            figures.record(name, found[variant])


def _rate(store: Store, paths: Sequence[str], threads: int) -> Callable[[], float]:
    """Return what measures reads per second: each thread reads all paths, and uses the columns."""

    def read() -> None:
        for path in paths:
            assert store.tables.load(path).columns

    def in_threads() -> None:
        with ThreadPoolExecutor(threads) as pool:
            for one in [pool.submit(read) for _ in range(threads)]:
                one.result()

    work = read if threads == 1 else in_threads
    return lambda: threads * len(paths) / seconds(work)


if __name__ == "__main__":
    raise SystemExit(main())
