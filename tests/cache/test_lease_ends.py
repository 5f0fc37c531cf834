"""Members that join slowly, end, or may not join: no writer waits for them longer than it must."""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn, cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import members
from metastore.cache import leased as leased_module
from metastore.cache.leased import Leased
from metastore.clock import SYSTEM
from metastore.port.members import MemberRows
from tests.cache.kept import LONG, keep, lake, leased
from tests.concurrency.raw import dsn
from tests.leases.test_fork import in_a_child
from tests.servers.pgbouncer import PgBouncer
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

T = "lake.c.s.t"
NEVER = 60.0
"""A ttl in which nobody is given up, and nothing is renewed."""


def test_a_member_that_joins_acknowledges(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long transaction keeps it from serving. Its next renewal is 20 s away."""
    lake(postgres_url)
    monkeypatch.setattr(leased_module, "_JOINS", 0.05)
    with psycopg.connect(dsn(postgres_url)) as long, ms.open(postgres_url) as other:
        long.execute("SELECT pg_current_xact_id()")
        with leased(postgres_url, ttl=NEVER) as cached:
            for n in range(3):
                other.tables.alter(T, ms.SetComment(f"{n}"), deadline=10)
                assert cached.tables.load(T).comment == f"{n}"
            assert cached.cache.stats().hits == 0
            long.rollback()
            keep(cached, lambda: cached.tables.load(T))


def test_a_member_needs_no_connection_of_the_pool(postgres_url: str) -> None:
    """While calls have them all, it renews, and goes on to look: writers do not wait for these calls."""
    lake(postgres_url)
    with (
        ms.open(postgres_url, cache=ms.Cache("lease", ttl=1.5), pool_size=1) as cached,
        psycopg.connect(dsn(postgres_url), autocommit=True) as raw,
    ):
        keep(cached, lambda: cached.tables.load(T))
        member = cast(Leased, cached._session.cache)._member
        listening = member._wake

        def renewals() -> int:
            return int(raw.execute("SELECT renewals FROM cache_member").fetchall()[0][0])

        with cast(Any, cached._session.backend).pool.connection():
            before = renewals()
            assert wait_until(lambda: renewals() >= before + 3, LONG)
            assert member._wake is listening, "it did not give its connection up"


def test_a_store_that_nobody_uses_any_more_leaves(postgres_url: str) -> None:
    lake(postgres_url)
    with ms.open(postgres_url) as other:
        _open_and_drop(postgres_url)
        gc.collect()
        assert wait_until(lambda: other.cache.members() == (), LONG)


def _open_and_drop(url: str) -> None:
    dropped = ms.open(url, cache=ms.Cache("lease", ttl=NEVER))
    keep(dropped, lambda: dropped.tables.load(T))
    assert len(dropped.cache.members()) == 1


def test_a_store_that_nobody_uses_any_more_ends_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased_module, "_JOINS", 0.05)
    thread = _thread_of_dropped(cast(MemberRows, _Unreachable()))
    gc.collect()
    assert wait_until(lambda: not thread.is_alive(), LONG)


class _Unreachable:
    def wake(self) -> NoReturn:
        raise ms.BackendUnavailable("no answer")


def _thread_of_dropped(rows: MemberRows) -> threading.Thread:
    member = Leased(rows, SYSTEM, ms.Cache("lease"))._member
    assert wait_until(lambda: member.runs, LONG)
    return cast(threading.Thread, member._thread)


def test_an_error_that_nobody_expects_does_not_end_the_cache(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the driver's errors have no meaning of ours: a plan whose result changed in a migration, for example."""
    lake(postgres_url)
    failed = threading.Event()
    looked = members._looked

    def fails_once(*arguments: Any, **options: Any) -> object:
        if not failed.is_set():
            failed.set()
            raise psycopg.errors.FeatureNotSupported("cached plan must not change result type")
        return looked(*arguments, **options)

    with leased(postgres_url, ttl=2.0) as cached:
        keep(cached, lambda: cached.tables.load(T))
        monkeypatch.setattr(members, "_looked", fails_once)
        assert failed.wait(LONG)
        assert wait_until(lambda: cached.cache.stats().fences >= 1, LONG)
        keep(cached, lambda: cached.tables.load(T))


def test_who_wakes_a_member_late_writes_to_no_other_file(postgres_url: str) -> None:
    """A reader may wake it while it closes its connection; the numbers of its files are soon those of others."""
    with ms.open(postgres_url) as store:
        wake = cast(Any, store._session.backend).cache_members.wake()
        wake.close()
        pipes = [os.pipe() for _ in range(4)]
        try:
            wake.wake()
            wake.close()
            read, _, _ = select.select([one for one, _ in pipes], [], [], 0)
            assert read == []
            for _, writes in pipes:
                assert os.write(writes, b"x") == 1, "it is still open"
        finally:
            for one in [number for pipe in pipes for number in pipe]:
                os.close(one)


def test_a_process_that_ends_leaves(postgres_url: str) -> None:
    lake(postgres_url)
    program = f"""import metastore as ms
store = ms.open({postgres_url!r}, cache=ms.Cache("lease", ttl={NEVER}))
print(len(store.cache.members()))"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True)
    assert ended.stdout.split() == ["1"]
    with ms.open(postgres_url) as other:
        assert other.cache.members() == ()


def test_a_worker_of_multiprocessing_leaves_when_it_ends(postgres_url: str) -> None:
    """A forked one ends by os._exit: what atexit has is not called."""
    lake(postgres_url)
    with leased(postgres_url, ttl=NEVER) as parent:
        (before,) = parent.cache.members()
        worker = multiprocessing.get_context("fork").Process(target=_works, args=(parent,))
        worker.start()
        worker.join(LONG)
        assert worker.exitcode == 0
        assert [member.id for member in parent.cache.members()] == [before.id]


def _works(store: ms.Store) -> None:
    keep(store, lambda: store.tables.load(T))
    assert os.getpid() in [member.pid for member in store.cache.members()]


_DEAD = """INSERT INTO cache_member (id, incarnation, renewals, seen, ttl, host, pid, joined_at, renewed_at)
SELECT nextval('entity_id_seq'), 'dead', 0, '3:3:', 1000000, 'somewhere', 1, 0, 0"""


def test_a_member_gives_up_silent_ones(postgres_url: str) -> None:
    """So a writer whose deadline is shorter than the ttl of one that was killed is held up for that ttl only."""
    lake(postgres_url)
    with leased(postgres_url, ttl=0.9) as cached, psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        raw.execute(_DEAD)
        assert wait_until(lambda: len(cached.cache.members()) == 1, LONG)
        keep(cached, lambda: cached.tables.load(T))


def test_a_writer_whose_deadline_is_short_helps_the_next_one(postgres_url: str) -> None:
    lake(postgres_url)
    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        store.tables.load(T)  # its first connection takes longer
        raw.execute(_DEAD.replace("1000000", "2500000"))
        with pytest.raises(ms.DeadlineExceeded, match="did not acknowledge"):
            store.tables.alter(T, ms.SetComment("new"), deadline=1.0)
        assert wait_until(lambda: store.cache.members() == (), LONG), "nobody writes meanwhile"
        store.tables.alter(T, ms.SetComment("new"), deadline=2.0)


def test_closing_does_not_wait_for_the_database(postgres_url: str) -> None:
    lake(postgres_url)
    cached = ms.open(postgres_url, cache=ms.Cache("lease", ttl=NEVER))
    with psycopg.connect(dsn(postgres_url)) as raw:
        raw.execute("LOCK TABLE cache_member")
        began = time.monotonic()
        cached.close()
        assert time.monotonic() - began < 15.0, "the deadline of the store is 30 s"


def test_a_role_that_may_not_join_is_told_so(postgres_url: str) -> None:
    """It may read: so without the error, it would ask the database for ever, and try to join each second."""
    lake(postgres_url)
    role = f"reader_{postgres_url.rpartition('/')[2]}"
    with psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        raw.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            raw.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode())
            raw.execute(f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}".encode())
            url = postgres_url.replace("postgres@", f"{role}@")
            with pytest.raises(ms.BackendRefused, match="cache_member"):
                ms.open(url, cache=ms.Cache("lease"))
            with ms.open(url, cache=ms.Cache("validate")) as reader:
                assert reader.tables.load(T).comment == "old"
            open_ = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
            assert wait_until(lambda: raw.execute(open_, [role]).fetchone() == (0,), LONG)
        finally:
            raw.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_a_store_that_cannot_be_opened_is_no_member(pgbouncer: PgBouncer) -> None:
    """The error is kept, with all that its frames hold: nobody else closes the cache."""
    direct, other = pgbouncer.server.create_database(), pgbouncer.server.create_database()
    for url in (direct, other):
        ms.migrate(url)
    with ms.open(direct) as store:
        for url in (direct, pgbouncer.url(direct.rpartition("/")[2])):
            with pytest.raises(ms.InvalidArgument, match="not a replica of this database") as error:
                ms.open(url, cache=ms.Cache("lease", ttl=NEVER), read_from=[other])
            assert (store.cache.members(), error.tb is None) == ((), False)


def test_a_member_behind_a_pooler_that_stands_still_keeps_nothing_locked(
    pgbouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has renewed, and does nothing any more: it is given up after its ttl."""
    direct = pgbouncer.server.create_database()
    ms.migrate(direct)
    lake(direct)
    still, go = threading.Event(), threading.Event()
    looked = members._looked

    def slow(*arguments: Any, **options: Any) -> object:
        found = looked(*arguments, **options)
        if arguments[3]:  # it renews
            still.set()
            go.wait(LONG)
        return found

    pooled = pgbouncer.url(direct.rpartition("/")[2])
    with leased(pooled, ttl=1.0) as cached, ms.open(direct) as other:
        keep(cached, lambda: cached.tables.load(T))
        monkeypatch.setattr(members, "_looked", slow)
        assert still.wait(LONG)
        try:
            other.tables.alter(T, ms.SetComment("new"), deadline=12)
            assert cached.tables.load(T).comment == "new"
        finally:
            go.set()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_forgets_whatever_the_parent_was_doing(postgres_url: str) -> None:
    """As at its first connection to a server that was restarted."""
    with leased(postgres_url) as store:
        cache = store.cache.used
        assert isinstance(cache, Leased)
        with cache._member._moving:
            in_a_child(cache.forget)
