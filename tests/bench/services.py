"""Measure what services ask for: pages at any depth and searches by name, ``python -m tests.bench.services``.

The calls that are compared take turns one by one, and each value is the median of its turns: a ratio holds on a machine
that does other work too. The blocks that the server reads for a page do not depend on the machine at all.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import psycopg
from rich.console import Console

import metastore as ms
from metastore.backends.postgres.settings import SESSION
from metastore.store import Store
from tests.bench.core.setting import CATALOG, Setting, captured, new_lake
from tests.bench.core.sizes import fill
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import ratios

BARS = {
    "page_20000th_vs_first": Bar("<=", 1.5),
    "find_prefix_1m_vs_10k": Bar("<=", 1.5),
    "page_blocks_20000th_vs_first": Bar("<=", 1.5),
    "page_first_ms": reported,
    "page_20000th_ms": reported,
    "find_prefix_1m_ms": reported,
    "find_prefix_10k_ms": reported,
}
SIZE = 50
"""How many tables a page has."""


def main() -> int:
    """Print the table, write build/bench/services.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.services", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the tables: to see that all works")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    setting = Setting(Figures("services", BARS), console, arguments.quick)
    began = time.monotonic()
    with setting.closing, contextlib.ExitStack() as closing:
        million = 200_000 if setting.quick else 1_000_000
        urls = [new_lake(setting.durable, "s") for _ in range(2)]
        for url, count in zip(urls, (million, 10_000), strict=True):
            fill(url, {"s": count})
        large, small = (closing.enter_context(ms.open(url, principal="bench")) for url in urls)
        _pages(setting, large, urls[0], million)
        _searches(setting, large, small, million)
    setting.figures.show(console)
    console.print(f"{setting.figures.write(keep=False)}; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _pages(setting: Setting, store: Store, url: str, million: int) -> None:
    """Compare the first page with the last one, which is the 20,000th of a million tables."""
    parent, token = f"{CATALOG}.s", None
    for _ in range(million // 1000 - 1):  # a token does not know how large the pages before it were
        token = store.tables.page(parent, size=1000, token=token).next_token
    for _ in range(1000 // SIZE - 1):
        token = store.tables.page(parent, size=SIZE, token=token).next_token
    last = store.tables.page(parent, size=SIZE, token=token)
    assert (len(last.items), last.next_token) == (SIZE, None)

    first_page, last_page = _in_turns(
        setting,
        lambda: store.tables.page(parent, size=SIZE),
        lambda: store.tables.page(parent, size=SIZE, token=token),
    )
    setting.figures.record("page_20000th_vs_first", ratios(last_page, first_page))
    setting.figures.record("page_first_ms", first_page)
    setting.figures.record("page_20000th_ms", last_page)
    blocks = [blocks_of(url, partial(store.tables.page, parent, size=SIZE, token=given)) for given in (None, token)]
    setting.figures.record("page_blocks_20000th_vs_first", [blocks[1] / blocks[0]])


def blocks_of(url: str, call: Callable[[], object]) -> int:
    """Return how many blocks the server reads for what ``call`` sends, as EXPLAIN counts them."""
    with captured() as sent:
        call()
    total = 0
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(SESSION)
        for text, parameters in sent:
            (((plan,),),) = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", parameters).fetchall()
            total += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    return total


def _searches(setting: Setting, large: Store, small: Store, million: int) -> None:
    """Search one table by the beginning of its name, among a million and among 10,000."""
    names = {large: f"table_{million - 223}*", small: "table_9777*"}
    assert all(len(list(store.find(name=name))) == 1 for store, name in names.items())
    among_many, among_few = _in_turns(
        setting, lambda: list(large.find(name=names[large])), lambda: list(small.find(name=names[small]))
    )
    setting.figures.record("find_prefix_1m_vs_10k", ratios(among_many, among_few))
    setting.figures.record("find_prefix_1m_ms", among_many)
    setting.figures.record("find_prefix_10k_ms", among_few)


def _in_turns(
    setting: Setting, one: Callable[[], object], other: Callable[[], object]
) -> tuple[list[float], list[float]]:
    """Call both in turns; return for each run the median of each (ms). One run before the first is thrown away."""
    found: tuple[list[float], list[float]] = [], []
    for run in range(-1, setting.runs):
        times: tuple[list[float], list[float]] = [], []
        for turn in range(setting.count(200)):
            for n in (0, 1) if turn % 2 else (1, 0):
                began = time.perf_counter()
                (one, other)[n]()
                times[n].append(1000 * (time.perf_counter() - began))
        if run >= 0:
            for values, of_run in zip(found, times, strict=True):
                values.append(median(of_run))
    return found


if __name__ == "__main__":
    sys.exit(main())
