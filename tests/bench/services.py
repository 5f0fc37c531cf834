"""Measure what services ask for: pages at any depth and searches by name, ``python -m tests.bench.services``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from rich.console import Console

import metastore as ms
from metastore.store import Store
from tests.bench.core.setting import CATALOG, Setting, new_lake
from tests.bench.core.sizes import fill
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import interleaved, ratios, seconds

BARS = {
    "page_20000th_vs_first": Bar("<=", 1.5),
    "find_prefix_1m_vs_10k": Bar("<=", 1.5),
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
        _pages(setting, large, million)
        _searches(setting, large, small, million)
    setting.figures.show(console)
    console.print(f"{setting.figures.write(keep=False)}; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _pages(setting: Setting, store: Store, million: int) -> None:
    """Compare the first page with the last one, which is the 20,000th of a million tables."""
    parent, token = f"{CATALOG}.s", None
    for _ in range(million // 1000 - 1):  # a token does not know how large the pages before it were
        token = store.tables.page(parent, size=1000, token=token).next_token
    for _ in range(1000 // SIZE - 1):
        token = store.tables.page(parent, size=SIZE, token=token).next_token
    last = store.tables.page(parent, size=SIZE, token=token)
    assert (len(last.items), last.next_token) == (SIZE, None)
    count = setting.count(100)

    def work(given: str | None) -> float:
        return seconds(lambda: [store.tables.page(parent, size=SIZE, token=given) and None for _ in range(count)])

    found = interleaved({"first": lambda: work(None), "last": lambda: work(token)}, setting.runs)
    setting.figures.record("page_20000th_vs_first", ratios(found["last"], found["first"]))
    setting.figures.record("page_first_ms", [1000 * s / count for s in found["first"]])
    setting.figures.record("page_20000th_ms", [1000 * s / count for s in found["last"]])


def _searches(setting: Setting, large: Store, small: Store, million: int) -> None:
    """Search one table by the beginning of its name, among a million and among 10,000."""
    count = setting.count(100)

    def work(store: Store, name: str) -> float:
        assert len(list(store.find(name=name))) == 1
        return seconds(lambda: [list(store.find(name=name)) and None for _ in range(count)])

    names = {"1m": f"table_{million - 223}*", "10k": "table_9777*"}
    found = interleaved(
        {"1m": lambda: work(large, names["1m"]), "10k": lambda: work(small, names["10k"])},
        setting.runs,
    )
    setting.figures.record("find_prefix_1m_vs_10k", ratios(found["1m"], found["10k"]))
    for name, values in found.items():
        setting.figures.record(f"find_prefix_{name}_ms", [1000 * s / count for s in values])


if __name__ == "__main__":
    sys.exit(main())
