"""Reads of the past beside reads of today, and what differs between two positions."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import metastore as ms
from metastore.store import Store
from tests.bench.core.setting import CATALOG, Setting
from tests.bench.time.lakes import VERSIONS, Lakes
from tests.bench.timing import ratios, seconds

__all__ = ["lakes_of", "measure"]

_TABLES = 1000


def lakes_of(lakes: Lakes, *, full: bool) -> tuple[str, str, str, str]:
    """Return four lakes: one with a short history and one with a long one, a small tree and a large one."""
    return (
        lakes.lake(s=(_TABLES, VERSIONS)),
        lakes.lake(s=(_TABLES, VERSIONS), other=(99_000 if full else 4_000, VERSIONS)),
        lakes.lake(s=(10_000, 1)),
        lakes.lake(s=(1_000_000 if full else 200_000, 1)),
    )


def measure(setting: Setting, lakes: Lakes, *, full: bool) -> None:
    """Compare the past with today; a short history with a long one; a diff in a small tree with one in a large one."""
    short, long, small, large = lakes_of(lakes, full=full)
    with ms.open(short, principal="bench") as one, ms.open(long, principal="bench") as other:
        _reads(setting, one)
        _listed(setting, one, other)
        _diff(setting, one)
    _differences(setting, small, large)
    for url in (short, long, small, large):
        lakes.leave(url)


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


def _differences(setting: Setting, small: str, large: str) -> None:
    """Compare the diff of 100 changes among very many tables with that among 10,000."""
    with ms.open(small, principal="bench") as one, ms.open(large, principal="bench") as other:
        a, b = _altered(one), _altered(other)
        few, many = in_turns(setting, lambda: list(one.diff(a)), lambda: list(other.diff(b)))
    setting.figures.record("diff_100_in_1m_vs_in_10k", ratios(many, few))
    setting.figures.record("diff_100_ms", many)


def _altered(store: Store) -> str:
    """Alter a hundred tables; return the position before that."""
    before, count = store.position(), sum(1 for _ in store.tables.names(f"{CATALOG}.s"))
    for n in range(1, count, count // 100):
        store.tables.alter(f"{CATALOG}.s.table_{n}", ms.SetComment(before))
    assert len(list(store.diff(before))) == 100
    return before


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
