"""Each rule of the lease mode in the real thing: a schedule in which it decides, and the store without the rule."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import members as sql
from metastore.backends.postgres.announcing import Announcing
from metastore.backends.postgres.members import PostgresMembers
from metastore.cache.fill import Announced
from metastore.cache.leased import Leased
from metastore.cache.membership import Member, Shown
from metastore.clock import Clock
from metastore.port.members import Announces, Covered
from tests.cache.kept import LONG, keep, lake, leased
from tests.concurrency.raw import dsn
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

T = "lake.c.s.t"


def _cache(store: ms.Store) -> Leased:
    return cast(Leased, store._session.cache)


# --- rules that a mutant breaks


def _fresh_after_a_change(url: str) -> bool:
    lake(url)
    with leased(url) as cached, ms.open(url) as other:
        keep(cached, lambda: cached.tables.load(T))
        other.tables.alter(T, ms.SetComment("new"))
        return cached.tables.load(T).comment == "new"


def _fresh_after_a_slow_answer(url: str) -> bool:
    """The database answers, the change is announced, acknowledged and committed, and then the answer is kept."""
    lake(url)
    with leased(url) as cached, ms.open(url) as other, ThreadPoolExecutor(1) as pool:
        answered, go = threading.Event(), threading.Event()
        ask = cached._session.resolve

        def slow(*arguments: Any) -> Any:
            answer = ask(*arguments)
            answered.set()
            assert go.wait(LONG)
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cached._session, "resolve", slow)
            reading = pool.submit(cached.tables.load, T)
            assert answered.wait(LONG)
            other.tables.alter(T, ms.SetComment("new"))
            go.set()
            assert reading.result(LONG).comment == "old"
        return cached.tables.load(T).comment == "new"


def _fresh_after_a_join(url: str) -> bool:
    """A commit that saw no members is under way while one joins: nothing is kept before it is over."""
    lake(url)
    with ms.open(url) as other, psycopg.connect(dsn(url), autocommit=True) as raw, ThreadPoolExecutor(2) as pool:
        other.tables.alter(T, ms.SetComment("warm"))
        raw.execute(_STALL)
        raw.execute("SELECT pg_advisory_lock(7)")
        late = pool.submit(other.tables.alter, T, ms.SetComment("new"))
        while not raw.execute(_WAITS).fetchall()[0][0]:
            assert not late.done()
        with leased(url) as cached:
            for _ in range(3):
                assert cached.tables.load(T).comment == "warm"
            raw.execute("SELECT pg_advisory_unlock(7)")
            late.result(LONG)
            return cached.tables.load(T).comment == "new"


_STALL = b"""CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON operation DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.path_after = 'lake.c.s.t') EXECUTE FUNCTION stall()"""
_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def _evicts_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("metastore.cache.entries.Entries.evict_announced", lambda self, what: None)


def _keeps_any_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Announced, "may_keep", lambda self, asked, entry: True)


def _fills_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("metastore.backends.postgres.members.PostgresMembers.oldest", lambda self, wake: 1 << 60)


RULES: dict[str, tuple[Callable[[str], bool], Callable[[pytest.MonkeyPatch], None]]] = {
    "evict before the acknowledgement": (_fresh_after_a_change, _evicts_nothing),
    "look at what was announced before an answer is kept": (_fresh_after_a_slow_answer, _keeps_any_answer),
    "keep nothing before the oldest transaction is younger": (_fresh_after_a_join, _fills_at_once),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("broken", [False, True])
def test_a_rule_keeps_reads_fresh(postgres_url: str, rule: str, broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, break_it = RULES[rule]
    if broken:
        break_it(monkeypatch)
    assert fresh(postgres_url) is not broken


# --- the writer waits, and gives up who is dead


def test_a_writer_waits_for_a_member_that_does_not_answer(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake(postgres_url)
    with leased(postgres_url, ttl=3.0) as cached, ms.open(postgres_url) as other:
        keep(cached, lambda: cached.tables.load(T))
        go = threading.Event()
        see = _cache(cached)._see

        def slow(*arguments: Any) -> Shown:
            assert go.wait(LONG)
            return see(*arguments)

        member = _cache(cached)._member
        monkeypatch.setattr(member, "_see", slow)
        with pytest.raises(ms.DeadlineExceeded, match="did not acknowledge"):
            other.tables.alter(T, ms.SetComment("too soon"), deadline=1.0)
        assert cached.tables.load(T).comment == "old", "its lease holds still, and nothing was written"
        began = time.monotonic()
        other.tables.alter(T, ms.SetComment("new"))
        waited = time.monotonic() - began
        assert waited < 3.0 + 10
        assert cached.tables.load(T).comment == "new"
        go.set()


def test_a_look_acknowledges_only_what_is_new(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that nobody waits for is not written; each announcement is acknowledged once."""
    lake(postgres_url)
    looked = threading.Semaphore(0)
    look = PostgresMembers.look

    def noted(self: PostgresMembers, *arguments: Any, **options: Any) -> object:
        try:
            return look(self, *arguments, **options)
        finally:
            looked.release()

    monkeypatch.setattr(PostgresMembers, "look", noted)
    with (
        leased(postgres_url, ttl=600.0) as cached,
        ms.open(postgres_url) as other,
        psycopg.connect(dsn(postgres_url), autocommit=True) as raw,
    ):

        def row() -> object:
            return raw.execute("SELECT ctid, renewals FROM cache_member").fetchall()

        def looks(count: int) -> None:
            while looked.acquire(blocking=False):
                pass
            for _ in range(count):
                _cache(cached)._member.look()
                assert looked.acquire(timeout=LONG)

        looks(2)
        before = row()
        looks(5)
        assert row() == before
        other.tables.alter(T, ms.SetComment("new"))
        assert row() != before
        looks(2)
        before = row()
        looks(5)
        assert row() == before


def test_an_announcement_outlives_an_attempt_that_lost(postgres_url: str) -> None:
    """What one attempt announced serves the next; in the end none is left."""
    lake(postgres_url)
    with leased(postgres_url, ttl=2.0), ms.open(postgres_url) as one, ThreadPoolExecutor(4) as pool:
        stale = one.tables.load(T)

        def add(n: int) -> None:
            with ms.open(postgres_url) as store:
                for k in range(5):
                    store.tables.alter(stale, ms.SetProperty(f"p{n}.{k}", "v"))

        for done in [pool.submit(add, n) for n in range(4)]:
            done.result(LONG)
        assert len(one.tables.load(T).properties) == 20
        assert one.verify() == []
        with psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
            none = "SELECT NOT EXISTS (SELECT FROM cache_announcement)"
            assert wait_until(lambda: raw.execute(none).fetchall() == [(True,)], LONG)


# --- clocks


@dataclass(frozen=True)
class _Shifted(Clock):
    """A clock whose hands can be moved."""

    by: dict[str, float]

    def monotonic(self) -> float:
        return super().monotonic() + self.by["monotonic"]

    def boottime(self) -> float:
        return super().boottime() + self.by["boottime"]

    def micros(self) -> int:
        return super().micros() + round(self.by["wall"] * 1_000_000)


@contextmanager
def _with_clock(url: str, when: str) -> Iterator[tuple[Leased, dict[str, float], ms.Store]]:
    by = {"monotonic": 0.0, "boottime": 0.0, "wall": 0.0}
    with ms.open(url) as store:
        rows = cast(Announces, store._session.backend).cache_members
        cache = Leased(rows, _Shifted(by), ms.Cache("lease", when_fenced=cast(Any, when)))
        try:
            store._session.cache = cache
            yield cache, by, store
        finally:
            cache.close()


@pytest.mark.parametrize(("hand", "by"), [("wall", 20.0), ("wall", -20.0), ("boottime", 20.0), ("monotonic", 20.0)])
def test_each_clock_ends_the_lease(postgres_url: str, hand: str, by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 60: the thread does nothing meanwhile, and yet the next read finds that the lease is over."""
    lake(postgres_url)
    with _with_clock(postgres_url, "raise") as (cache, hands, store):
        ends = time.monotonic() + LONG
        while cache.held("table", T) is None:
            store.tables.load(T)
            assert time.monotonic() < ends
        # the thread must not renew meanwhile: it is as if the process had just been resumed
        monkeypatch.setattr(Member, "_once", lambda self: self._closed.wait(0.05) or True)
        member = cache._member
        member.look()
        hands[hand] = by
        ends = time.monotonic() + LONG
        while cache.held("table", T) is not None:  # a renewal may have been under way
            assert time.monotonic() < ends
        with pytest.raises(ms.CacheFenced) as fenced:
            store.tables.load(T)
        assert (fenced.value.code, fenced.value.http_status) == ("cache_fenced", 503)
        monkeypatch.undo()
        member.look()
        ends = time.monotonic() + LONG
        while cache.held("table", T) is None:  # it renews by its new clocks, and serves
            try:
                store.tables.load(T)
            except ms.CacheFenced:
                assert time.monotonic() < ends
        assert cache.stats().fences >= 1


# --- a forked child


def test_a_forked_child_serves_nothing_of_its_parents(postgres_url: str) -> None:
    lake(postgres_url)
    with leased(postgres_url) as cached:
        keep(cached, lambda: cached.tables.load(T))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # whatever happens, the child ends
            try:
                fenced = _cache(cached).held("table", T) is None
                counted = cached.cache.stats().hits
                fresh = cached.tables.load(T).comment == "old"
                os.write(writer, b"y" if fenced and fresh and counted == 0 else b"n")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 1) == b"y"
        os.close(reader)
        os.close(writer)
        assert _cache(cached).held("table", T) is not None


class _ForTwo:
    """A lock that the first thread gets only when a second one wants it."""

    def __init__(self) -> None:
        self._both, self._lock, self._first = threading.Barrier(2), threading.RLock(), iter(range(2))

    def __enter__(self) -> None:
        if next(self._first, None) is not None:
            self._both.wait(LONG)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_threads_of_a_forked_child_join_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second member would be one that nobody ends: writers would wait for it."""
    lake(postgres_url)
    with leased(postgres_url) as cached, ThreadPoolExecutor(2) as pool:
        cache, made = _cache(cached), list[Member]()
        cache._member.close()
        new_member = cache._new_member

        def counted() -> Member:
            made.append(new_member())
            return made[-1]

        monkeypatch.setattr(cache, "_new_member", counted)
        monkeypatch.setattr(cache, "_lock", _ForTwo())
        cache._member._process = -1  # that of the parent
        reads = [pool.submit(cached.tables.load, path) for path in (T, "lake.c.s.u")]
        assert [read.result(LONG).comment for read in reads] == ["old"] * 2
        assert made == [cache._member]
        assert wait_until(lambda: len(cached.cache.members()) == 1, LONG)


def test_what_is_announced_is_what_is_written() -> None:
    assert Covered(ids=frozenset([1])).within(Covered(ids=frozenset([1, 2])))
    assert not Covered(scopes=frozenset([1])).within(Covered(ids=frozenset([1])))


def test_a_generation_is_read_before_the_members(postgres_url: str) -> None:
    """Between the two a member may join: then its generation is another one, and the commit fails."""
    lake(postgres_url)
    with ms.open(postgres_url) as other, psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        order: list[str] = []
        announcing = cast(Announcing, cast(Any, other._session.backend)._announcing)
        ask = announcing._ask

        def noted(text: str, parameters: dict[str, Any]) -> list[Any]:
            order.append(text)
            return ask(text, parameters)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(announcing, "_ask", noted)
            raw.execute("SELECT nextval('cache_generation')")
            other.tables.alter(T, ms.SetComment("new"))
        assert order == [sql.GENERATION_NOW, sql.ANY_MEMBERS]
