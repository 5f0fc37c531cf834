"""What stays in the cache: both bounds hold at any time, and what is used often outlives what is read once."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from theine_core import TlfuCore

from metastore.cache import bounded
from metastore.cache.bounded import Bounded
from metastore.cache.entries import Entries
from metastore.cache.entry import Entry

HOT, SCAN = 200, 5_000


def _entry(key: Hashable, size: int = 100) -> Entry:
    return Entry((), (1,), None, size, 0, key=key)


def _put(kept: Bounded, key: Hashable, size: int = 100) -> None:
    kept.put(key, _entry(key, size))


def _read(kept: Entries, key: Hashable, size: int) -> bool:
    if kept.get(key) is not None:
        return True
    kept.put(key, _entry(key, size))
    return False


def _hits_of_the_hot(most: int, most_bytes: int) -> float:
    """Return which part of the reads of a hot set was answered, while other things are read once."""
    kept, chance, hits, reads = Entries(most, most_bytes), random.Random(1), 0, 0
    for n in range(20_000):
        _read(kept, f"scan {n}", chance.choice((80, 120)))
        if n % 4 == 0:
            reads += 1
            hits += _read(kept, f"hot {chance.randrange(HOT)}", chance.choice((80, 120)))
    assert len(kept) <= most
    assert kept.bytes <= most_bytes
    return hits / reads


def _hits_of_lru(most: int) -> float:
    kept: OrderedDict[str, None] = OrderedDict()
    chance, hits, reads = random.Random(1), 0, 0
    for n in range(20_000):
        for key in [f"scan {n}"] if n % 4 else [f"scan {n}", f"hot {chance.randrange(HOT)}"]:
            hot, there = key.startswith("hot"), key in kept
            reads, hits = reads + hot, hits + (hot and there)
            kept[key] = None
            kept.move_to_end(key)
            if len(kept) > most:
                kept.popitem(last=False)
    return hits / reads


@pytest.mark.parametrize(("most", "most_bytes"), [(300, 1 << 40), (1_000_000, 30_000)], ids=["entries", "bytes"])
def test_what_is_used_often_outlives_a_scan(most: int, most_bytes: int) -> None:
    """The same by either bound; a cache that keeps the least recently used would not do it."""
    assert _hits_of_the_hot(most, most_bytes) > 0.8
    assert _hits_of_lru(300) < 0.4


@given(
    st.integers(1, 20),
    st.integers(50, 2_000),
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["put", "pop", "use"]), st.integers(1, 900)), max_size=80),
)
def test_both_bounds_hold_and_nothing_is_lost_without_notice(
    most: int, most_bytes: int, steps: list[tuple[int, str, int]]
) -> None:
    kept, there = Bounded(most, most_bytes), dict[int, int]()
    for key, what, size in steps:
        if what == "pop":
            assert (kept.pop(key) is not None) is (key in there)
            there.pop(key, None)
        elif what == "put":
            kept.pop(key)
            there[key] = size
            for gone, entry in kept.put(key, _entry(key, size)):
                assert there.pop(gone) == entry.size  # type: ignore[call-overload]
        elif key in kept.all and not kept.all[key].used:
            kept.all[key].used = True
            kept.used.append(kept.all[key])
        assert {one: entry.size for one, entry in kept.all.items()} == there
        assert kept.bytes == sum(there.values()) <= most_bytes
        assert len(there) <= most


def test_it_keeps_as_many_as_fit() -> None:
    """Large answers first: few fit. When small ones come, there is room for more of them."""
    kept = Bounded(10_000, 100_000)
    for n in range(1_000):
        _put(kept, n, 1_000)
    assert 90 <= len(kept.all) <= 100
    for n in range(1_000, 30_000):
        _put(kept, n, 10)
    assert len(kept.all) > 1_000


def test_readers_note_what_they_use_without_a_lock() -> None:
    kept, stop = Entries(1_000, 1 << 40), threading.Event()
    for n in range(500):
        kept.put(n, _entry(n))

    def read() -> None:
        while not stop.is_set():
            for n in range(500):
                kept.get(n)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(500, 900):
        kept.put(n, _entry(n))
    stop.set()
    for reader in readers:
        reader.join()
    noted = {id(entry) for entry in kept.used}
    assert all(id(entry) in noted for entry in kept.all.values() if entry.used), "one would never be counted again"


def test_keys_with_the_same_hash() -> None:
    """One of the two goes: only one can be counted."""
    kept = Bounded(10, 1 << 40)
    _put(kept, -1)
    gone = kept.put(-2, _entry(-2))
    assert [key for key, _ in gone] == [-1]
    assert list(kept.all) == [-2]


def test_the_policy_takes_memory_for_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes it at once, for as many answers as it may count: for a billion of them, the process would end."""
    counts: list[int] = []

    def noted(most: int) -> object:
        counts.append(most)
        return policy(most)

    policy = TlfuCore
    monkeypatch.setattr(bounded, "TlfuCore", noted)
    monkeypatch.setattr(bounded, "_BEGINS", 10)
    kept = Bounded(1 << 62, 1 << 62)
    for n in range(1000):
        _put(kept, n)
    assert len(kept.all) == 1000, "there is room for all"
    assert counts[0] == 10
    assert max(counts) < 2000
