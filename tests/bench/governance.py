"""Measure tags, other relations, and the calls of users, ``python -m tests.bench.governance``.

The calls that are compared take turns, and each value is the median of its turns: a ratio holds on a machine that does
other work too.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from itertools import islice
from statistics import median

import psycopg
from rich.console import Console

import metastore as ms
from metastore.store import Store
from tests.bench import tags_on_spark
from tests.bench.authorization import AUTHORIZED, measure
from tests.bench.before.trees import COUNTS, ROOT, Side, tree_of
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, new_lake
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import interleaved, ratios, seconds

BARS = {
    "attach_many_vs_create_many": Bar(">=", 1.0),
    "drop_tag_100k_vs_10": Bar("<=", 1.5),
    "tags_of_vs_load": Bar("<=", 1.5),
    "targets_first_page_100k_vs_1k": Bar("<=", 1.5),
    "attach_many_per_s": reported,
    "tags_of_ms": reported,
    "targets_first_page_ms": reported,
    "plain_alter_cpu_vs_before": Bar("<=", 1.03),
    **AUTHORIZED,
}
_BEFORE = "bd1a5f6a5"
"""The commit before governance began."""
DEEP = f"{CATALOG}.a.b.c.t"
"""A table at depth 6."""


def main() -> int:
    """Print the table, write build/bench/governance.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.governance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the tables: to see that all works")
    parser.add_argument("--spark", action="store_true", help="also a million tags from Spark's executors (needs Java)")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    bars = {**BARS, **(tags_on_spark.ON_SPARK if arguments.spark else {})}
    setting = Setting(Figures("governance", bars), console, arguments.quick)
    began = time.monotonic()
    with setting.closing, contextlib.ExitStack() as closing:
        url = new_lake(setting.durable, "s")
        store = closing.enter_context(ms.open(url, principal="bench", pool_size=40))
        many = 10_000 if setting.quick else 100_000
        _attach_many(setting, store, many)
        _vacuum(url)
        _reads(setting, store)
        _drops(setting, store)
        measure(setting, store, url, _in_turns)
        if arguments.spark:
            tags_on_spark.measure(setting, store, url, many)
        _plain_alters(setting)
    setting.figures.show(console)
    console.print(f"{setting.figures.write(keep=False)}; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _attach_many(setting: Setting, store: Store, many: int) -> None:
    """Compare attaching a tag to tables with creating as many; then the tag ``many`` is on ``many`` tables."""
    names = [f"t{n}" for n in range(many)]
    store.tables.create_many(f"{CATALOG}.s", [{"name": name, "columns": COLUMNS[:2]} for name in names])
    size, turn = many // 10, 0
    rows = [{"target": f"{CATALOG}.s.{name}", "kind": "table"} for name in names[:size]]

    def create() -> float:
        nonlocal turn
        turn += 1
        made = [{"name": f"x{turn}_{n}", "columns": COLUMNS[:2]} for n in range(size)]
        return size / seconds(lambda: store.tables.create_many(f"{CATALOG}.s", made))

    def attach() -> float:
        store.tags.create(f"lake.turn{turn}", if_exists="return")
        return size / seconds(lambda: store.tags.attach_many(f"lake.turn{turn}", rows))

    given = interleaved({"create": create, "attach": attach}, 3)
    setting.figures.record("attach_many_vs_create_many", ratios(given["attach"], given["create"]))
    setting.figures.record("attach_many_per_s", given["attach"])
    for tag, count in (("many", many), ("thousand", 1000), ("ten", 10)):
        store.tags.create(f"lake.{tag}")
        store.tags.attach_many(
            f"lake.{tag}", [{"target": f"{CATALOG}.s.{name}", "kind": "table"} for name in names[:count]]
        )


def _reads(setting: Setting, store: Store) -> None:
    store.tables.create(DEEP, parents=True, columns=COLUMNS)
    for path, kind in ((DEEP, "table"), (CATALOG, "catalog"), ("lake", "metalake")):
        store.tags.attach(path, "lake.ten", value=kind, kind=kind)
    load, tags = _in_turns(setting, lambda: store.tables.load(DEEP).columns, lambda: store.tags.on(DEEP, kind="table"))
    setting.figures.record("tags_of_vs_load", ratios(tags, load))
    setting.figures.record("tags_of_ms", tags)
    few, many = _in_turns(
        setting,
        lambda: list(islice(store.tags.targets("lake.thousand"), 100)),
        lambda: list(islice(store.tags.targets("lake.many"), 100)),
    )
    setting.figures.record("targets_first_page_100k_vs_1k", ratios(many, few))
    setting.figures.record("targets_first_page_ms", many)


def _drops(setting: Setting, store: Store) -> None:
    """Compare the drop of a tag on very many tables with that of a tag on ten."""

    def drop(path: str) -> None:
        store.tags.drop(path)
        store.tags.restore(path)

    few, many = _in_turns(setting, lambda: drop("lake.ten"), lambda: drop("lake.many"), 40)
    setting.figures.record("drop_tag_100k_vs_10", ratios(many, few))


def _plain_alters(setting: Setting) -> None:
    """Compare the processor time of a plain alter, the client's and the server's together, with the commit before."""
    with contextlib.ExitStack() as closing:
        now, before = (Side(root, setting.durable, closing, 1) for root in (ROOT, tree_of(_BEFORE)))
        for turn in range(-2, setting.count(40)):
            for side in (now, before) if turn % 2 else (before, now):
                side.turn("alter", COUNTS["alter"], keep=turn >= 0)
    taken = [
        [own + served for own, served in zip(side.cpu["alter"], side.server_cpu["alter"], strict=True)]
        for side in (now, before)
    ]
    setting.figures.record("plain_alter_cpu_vs_before", ratios(*taken))


def _vacuum(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _in_turns(
    setting: Setting, one: Callable[[], object], other: Callable[[], object], turns: int = 200
) -> tuple[list[float], list[float]]:
    """Call both in turns; return for each run the median of each (ms). One run before the first is thrown away."""
    found: tuple[list[float], list[float]] = [], []
    for run in range(-1, setting.runs):
        times: tuple[list[float], list[float]] = [], []
        for turn in range(setting.count(turns)):
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
