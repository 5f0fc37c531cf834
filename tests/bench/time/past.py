"""Reads of the past beside reads of today, and what differs between two positions."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import metastore as ms
from metastore.store import Store
from tests.bench.core.setting import CATALOG, Setting, new_lake
from tests.bench.time.lakes import VERSIONS, add_tables, settle
from tests.bench.timing import ratios, seconds

__all__ = ["measure"]

_TABLES = 1000


def measure(setting: Setting, *, full: bool) -> None:
    """Compare the past with today; a short history with a long one; a diff in a small tree with one in a large one."""
    short, long = new_lake(setting.durable, "s"), new_lake(setting.durable, "s", "other")
    add_tables(short, "s", _TABLES)
    add_tables(long, "s", _TABLES)
    add_tables(long, "other", 99_000 if full else 4_000)
    for url in (short, long):
        settle(url)
    with ms.open(short, principal="bench") as one, ms.open(long, principal="bench") as other:
        _reads(setting, one)
        _listed(setting, one, other)
        _diff(setting, one)
    for url in (short, long):
        setting.durable.drop_database(url)
    _differences(setting, 1_000_000 if full else 200_000)


def _middle(store: Store) -> str:
    """Return the position at which each table has half of its versions."""
    end, last = f"{CATALOG}.s.table_{_TABLES}", VERSIONS // 2
    return next(c.position for c in store.changes(kinds=["table"]) if c.path_after == end and c.version == last)


def _reads(setting: Setting, store: Store) -> None:
    past = store.at(_middle(store))
    paths = [f"{CATALOG}.s.table_{n}" for n in range(1, _TABLES, 7)]
    entity = store.tables.load(paths[0])
    assert past.tables.load(paths[0]).version == VERSIONS // 2
    now, then = in_turns(
        setting,
        lambda: [store.tables.load(path).columns for path in paths],
        lambda: [past.tables.load(path).columns for path in paths],
    )
    setting.figures.record("as_of_load_vs_load", ratios(then, now))
    setting.figures.record("as_of_load_ms", [ms / len(paths) for ms in then])
    _, by_id = in_turns(
        setting, lambda: store.tables.load(entity), lambda: [past.tables.load(entity) for _ in range(100)]
    )
    setting.figures.record("as_of_load_by_id_ms", [ms / 100 for ms in by_id])


def _listed(setting: Setting, store: Store, long: Store) -> None:
    past, past_of_long, parent = store.at(_middle(store)), long.at(_middle(long)), f"{CATALOG}.s"
    assert len(list(past.tables.list(parent))) == len(list(past_of_long.tables.list(parent))) == _TABLES
    now, then = in_turns(setting, lambda: list(store.tables.list(parent)), lambda: list(past.tables.list(parent)))
    setting.figures.record("as_of_list_1000_vs_list", ratios(then, now))
    setting.figures.record("as_of_list_1000_ms", then)
    few, many = in_turns(
        setting, lambda: list(past.tables.list(parent)), lambda: list(past_of_long.tables.list(parent))
    )
    setting.figures.record("as_of_list_in_10m_history_vs_100k", ratios(many, few))


def _diff(setting: Setting, store: Store) -> None:
    """Time a diff of half of the history: all tables, each altered many times."""
    middle, changed = _middle(store), _TABLES * VERSIONS // 2
    taken = [seconds(lambda: list(store.diff(middle))) for _ in range(3)]
    setting.figures.record("diff_rows_per_s", [changed / one for one in taken])


def _differences(setting: Setting, million: int) -> None:
    """Compare the diff of 100 changes among very many tables with that among 10,000."""
    found = list[list[float]]()
    stores = list[tuple[Store, str]]()
    urls = [new_lake(setting.durable, "s") for _ in range(2)]
    for url, count in zip(urls, (10_000, million), strict=True):
        add_tables(url, "s", count, 1)
        settle(url)
        store = ms.open(url, principal="bench")
        before = store.position()
        for n in range(1, count, count // 100):
            store.tables.alter(f"{CATALOG}.s.table_{n}", ms.SetComment("1"))
        stores.append((store, before))
        assert len(list(store.diff(before))) == 100
    (small, a), (large, b) = stores
    found += in_turns(setting, lambda: list(small.diff(a)), lambda: list(large.diff(b)))
    setting.figures.record("diff_100_in_1m_vs_in_10k", ratios(found[1], found[0]))
    setting.figures.record("diff_100_ms", found[1])
    for store, _ in stores:
        store.close()
    for url in urls:
        setting.durable.drop_database(url)


def in_turns(
    setting: Setting, one: Callable[[], object], other: Callable[[], object]
) -> tuple[list[float], list[float]]:
    """Call both in turns; return for each run the median of each (ms). One run before the first is thrown away."""
    found: tuple[list[float], list[float]] = [], []
    for run in range(-1, setting.runs):
        times: tuple[list[float], list[float]] = [], []
        for turn in range(5):
            for n in (0, 1) if turn % 2 else (1, 0):
                began = time.perf_counter()
                (one, other)[n]()
                times[n].append(1000 * (time.perf_counter() - began))
        if run >= 0:
            for values, of_run in zip(found, times, strict=True):
                values.append(median(of_run))
    return found
