"""Each rule of the cache alone: a schedule in which it decides, and the cache without it, which the test finds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

import metastore as ms
from metastore.cache.validated import Validated
from tests.cache.mutants import break_rule
from tests.concurrency.raw import dsn

LONG = 30.0


def _seed(url: str) -> None:
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        for name in ("t", "other"):
            store.tables.create(f"lake.c.s.{name}", parents=True, comment="old", if_exists="return")


@contextmanager
def _two(url: str) -> Iterator[tuple[ms.Store, ms.Store]]:
    """Give a store that caches, with table t kept, and another one, which writes."""
    _seed(url)
    with ms.open(url, cache=ms.Cache("validate")) as cached, ms.open(url) as other:
        for _ in range(3):
            assert cached.tables.load("lake.c.s.t").comment == "old"
        assert cached.cache.stats().hits >= 1
        yield cached, other


def _fresh_after_rename(url: str) -> bool:
    with _two(url) as (cached, other):
        other.schemas.rename("lake.c.s", "r")
        return not cached.tables.exists("lake.c.s.t")


def _fresh_after_create(url: str) -> bool:
    with _two(url) as (cached, other):
        for _ in range(3):
            assert not cached.tables.exists("lake.c.n.t")
        other.tables.create("lake.c.n.t", parents=True)
        return cached.tables.exists("lake.c.n.t")


class _Gate:
    """Holds the first call of a method back after the database has answered it."""

    def __init__(self, held: object, method: str, patch: pytest.MonkeyPatch) -> None:
        self.answered, self.go = threading.Event(), threading.Event()
        ask = getattr(held, method)

        def gated(*arguments: object) -> object:
            answer = ask(*arguments)
            if not self.answered.is_set():
                self.answered.set()
                assert self.go.wait(LONG)
            return answer

        patch.setattr(held, method, gated)


def _fresh_beside_an_old_query(url: str) -> bool:
    with _two(url) as (cached, other), ThreadPoolExecutor(2) as pool, pytest.MonkeyPatch.context() as patch:
        gate = _Gate(cached._session.backend, "touched", patch)
        first = pool.submit(cached.tables.load, "lake.c.s.t")
        assert gate.answered.wait(LONG)
        other.tables.alter("lake.c.s.t", ms.SetComment("new"))
        second = pool.submit(cached.tables.load, "lake.c.s.t")
        fresh = second.result(LONG).comment == "new"  # it takes the lead after a while, as the first does not come back
        gate.go.set()
        assert first.result(LONG).comment in ("old", "new")
        return fresh and cached.tables.load("lake.c.s.t").comment == "new"


def _fresh_after_a_slow_answer(url: str) -> bool:
    with _two(url) as (cached, other), ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        other.tables.alter("lake.c.s.other", ms.SetComment("warm"))
        gate = _Gate(cached._session, "resolve", patch)
        slow = pool.submit(cached.tables.load, "lake.c.s.other")  # not kept yet
        assert gate.answered.wait(LONG)
        other.tables.alter("lake.c.s.other", ms.SetComment("new"))
        cached.tables.load("lake.c.s.t")  # applies the change before the slow answer arrives
        gate.go.set()
        assert slow.result(LONG).comment == "warm"
        return cached.tables.load("lake.c.s.other").comment == "new"


_STALL = """CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON operation DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.path_after = 'lake.c.s.t') EXECUTE FUNCTION stall()"""
_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def _fresh_after_a_late_commit(url: str) -> bool:
    """A commit draws its position, and becomes visible after a later one."""
    with (
        _two(url) as (cached, other),
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn(url), autocommit=True) as raw,
    ):
        raw.execute(_STALL)  # type: ignore[arg-type, unused-ignore]
        raw.execute("SELECT pg_advisory_lock(7)")
        late = pool.submit(other.tables.alter, "lake.c.s.t", ms.SetComment("new"))
        while not raw.execute(_WAITS).fetchall()[0][0]:
            assert not late.done()
        with ms.open(url) as third:
            third.tables.alter("lake.c.s.other", ms.SetComment("later"))
        assert cached.tables.load("lake.c.s.t").comment == "old"  # the position of the late commit is a gap now
        assert cached.cache.stats().entries
        raw.execute("SELECT pg_advisory_unlock(7)")
        late.result(LONG)
        return cached.tables.load("lake.c.s.t").comment == "new"


_EVERYWHERE: dict[str, Callable[[str], bool]] = {
    "keeps_what_is_below": _fresh_after_rename,
    "forgets_what_appears": _fresh_after_create,
    "joins_an_old_query": _fresh_beside_an_old_query,
    "keeps_what_changed_meanwhile": _fresh_after_a_slow_answer,
}


@pytest.mark.parametrize("rule", list(_EVERYWHERE))
@pytest.mark.parametrize("broken", [False, True])
def test_a_rule_keeps_reads_fresh(url: str, rule: str, broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 14: with ``keeps_what_changed_meanwhile``, an old answer arrives late and overwrites nothing newer."""
    break_rule(rule if broken else None, monkeypatch)
    assert _EVERYWHERE[rule](url) is not broken


@pytest.mark.parametrize("broken", [False, True])
def test_a_gap_is_asked_for_again(postgres_url: str, broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule("ignores_gaps" if broken else None, monkeypatch)
    assert _fresh_after_a_late_commit(postgres_url) is not broken


def test_a_gap_that_no_commit_fills_is_given_up(postgres_url: str) -> None:
    with _two(postgres_url) as (cached, other), psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        raw.execute("SELECT nextval('change_seq')")
        other.tables.alter("lake.c.s.other", ms.SetComment("later"))
        cache = cached._session.cache
        assert isinstance(cache, Validated)
        cached.tables.load("lake.c.s.t")
        positions = cache._era.positions
        assert positions is not None
        assert len(positions.missing) == 1
        for _ in range(4):
            cached.tables.load("lake.c.s.t")
        assert not positions.missing
        assert cache._era.positions is positions, "nothing else was forgotten for that"


def test_a_long_gap_and_many_changes_clear_it(postgres_url: str) -> None:
    with _two(postgres_url) as (cached, other), psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        raw.execute("SELECT nextval('change_seq') FROM generate_series(1, 5000)")
        other.tables.alter("lake.c.s.t", ms.SetComment("later"))
        assert [cached.tables.load("lake.c.s.t").comment for _ in range(4)] == ["later"] * 4
        assert cached.cache.stats().clears == 1
        other.tables.create_many("lake.c.s", [{"name": f"m{n}"} for n in range(1100)])
        assert [cached.tables.exists("lake.c.s.m7") for _ in range(4)] == [True] * 4
        assert cached.cache.stats().clears == 2


def test_collected_changes_clear_it(url: str) -> None:
    from datetime import timedelta

    with _two(url) as (cached, other):
        other.tables.rename("lake.c.s.t", "u")
        for _ in range(3):
            other.tables.alter("lake.c.s.other", ms.SetComment("x"))
            other.tables.alter("lake.c.s.other", ms.SetComment("y"))
        other.tables.drop("lake.c.s.u")
        other.gc(retention=timedelta(0), keep_versions=1)
        assert not cached.tables.exists("lake.c.s.t")
