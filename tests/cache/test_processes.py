"""Real processes write while others read through their caches: each read is as true as one from the database."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import metastore as ms
from tests.cache.mutants import break_rule
from tests.cache.windows import Seen, not_linear
from tests.concurrency.workers import Job, Team, Turn

SECONDS, THREADS = 1.5, 4
FEWEST = 24
"""Writes, and reads of each process: on a busy machine they take longer."""
Log = dict[str, list[Seen]]


def _noted(log: list[Seen], call: Callable[[], object]) -> None:
    began = time.monotonic()
    value = call()
    log.append(Seen(began, time.monotonic(), value))


def write(turn: Turn) -> Log:
    """Change one table's version, and rename the schema of another to and fro."""
    store, log = turn.store, Log(version=[], there=[], new=[])
    _noted(log["version"], lambda: store.tables.alter("lake.c.s.t", ms.SetComment("0")).version)
    _noted(log["there"], lambda: store.schemas.exists("lake.c.here"))
    _noted(log["new"], lambda: store.tables.exists("lake.c.s.new"))
    turn.meet()
    end, n = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or n < FEWEST:
        n += 1
        _noted(log["version"], lambda: store.tables.alter("lake.c.s.t", ms.SetComment(str(n))).version)  # noqa: B023
        if n % 3 == 0:
            names = ("here", "gone") if n % 2 else ("gone", "here")
            _noted(log["there"], lambda: store.schemas.rename(f"lake.c.{names[0]}", names[1]).name == "here")  # noqa: B023
        if n % 4 == 0:
            if n % 8 == 0:
                _noted(log["new"], lambda: store.tables.drop("lake.c.s.new") and False)
            else:
                _noted(log["new"], lambda: bool(store.tables.create("lake.c.s.new")))
    return log


def read(turn: Turn, mutant: str | None) -> Log:
    """Read all of that in several threads, through one cache."""
    log = Log(version=[], there=[], new=[])

    def go_on(store: ms.Store) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(log["there"]) < FEWEST:
            _noted(log["version"], lambda: store.tables.load("lake.c.s.t").version)
            _noted(log["there"], lambda: store.tables.exists("lake.c.here.t"))
            _noted(log["new"], lambda: store.tables.exists("lake.c.s.new"))

    with pytest.MonkeyPatch.context() as patch, ms.open(turn.url, cache=ms.Cache("validate")) as store:
        break_rule(mutant, patch)
        turn.meet()
        with ThreadPoolExecutor(THREADS) as pool:
            for one in [pool.submit(go_on, store) for _ in range(THREADS)]:
                one.result()
        assert store.cache.stats().hits > 0
    return log


def _wrong(url: str, team: Team, mutant: str | None) -> dict[str, int]:
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True)
        store.tables.create("lake.c.here.t", parents=True)
    writes, *reads = team.run(url, [Job(write), Job(read, mutant), Job(read, mutant)])
    assert all(len(log["there"]) >= FEWEST for log in reads)
    return {what: len(not_linear(writes[what], [r for log in reads for r in log[what]])) for what in writes}


def test_no_read_is_old_and_none_goes_back(url: str, team: Team) -> None:
    assert _wrong(url, team, None) == {"version": 0, "there": 0, "new": 0}


@pytest.mark.parametrize(("mutant", "what"), [("keeps_what_is_below", "there"), ("forgets_what_appears", "new")])
def test_the_check_finds_a_cache_without_a_rule(postgres_url: str, team: Team, mutant: str, what: str) -> None:
    assert _wrong(postgres_url, team, mutant)[what] > 0


def test_the_judge_tells_old_reads_and_inversions() -> None:
    writes = [Seen(0, 1, "a"), Seen(2, 4, "b")]
    assert not_linear(writes, [Seen(3, 3.5, "b"), Seen(3.2, 3.6, "a"), Seen(5, 6, "b")]) == []
    assert not_linear(writes, [Seen(5, 6, "a")]) == [Seen(5, 6, "a")]
    assert not_linear(writes, [Seen(2.1, 2.2, "b"), Seen(2.3, 2.4, "a")]) == [Seen(2.3, 2.4, "a")]
    assert not_linear(writes, [Seen(1.1, 1.2, "b")]) == [Seen(1.1, 1.2, "b")]
