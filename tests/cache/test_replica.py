"""Reads from a real streaming replica: they may be old, and say how old; nothing older than promised is ever read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.reads import PostgresReads
from metastore.port.feed import on_timeline
from metastore.replicas import reads, source
from metastore.store import Store
from tests.cache.kept import LONG
from tests.cache.replicas import Pair, pair
from tests.concurrency.raw import dsn
from tests.servers.pgbouncer import PgBouncer
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy
from tests.setup.pgbouncer import find_pgbouncer

pytestmark = pytest.mark.one_in(3)

T = "lake.c.s.t"


@pytest.fixture(scope="module")
def two() -> Iterator[Pair]:
    with pair() as both:
        yield both


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a replica that lives be slow on a busy machine: else it would rest, and the primary would be read."""
    monkeypatch.setattr(source, "_OPENS", LONG)
    monkeypatch.setattr(reads, "_ANSWERS", LONG)


@pytest.fixture
def store(two: Pair) -> Iterator[Store]:
    with ms.open(two.url, read_from=[two.replica_url]) as opened:
        two.resume()
        yield opened
        two.resume()


def test_a_replica_gets_no_cache(two: Pair) -> None:
    with ms.open(two.replica_url) as store:
        assert [lake.name for lake in store.metalakes.list()] == ["lake"]
    with pytest.raises(ms.InvalidArgument, match="replica"):
        ms.open(two.replica_url, cache=ms.Cache("validate"))


def test_a_view_says_how_old_it_is(two: Pair, store: Store) -> None:
    before = two.caught_up(store)
    two.pause()
    table = store.tables.alter(T, ms.SetComment("new"))
    old = store.replica()
    assert (old.position, old.from_primary) == (before, False)
    assert old.tables.load(T).version == table.version - 1
    assert store.tables.load(T) == table, "all other reads go to the primary"
    assert old.position < store.position()
    two.resume()
    assert store.replica(at_least=two.caught_up(store)).tables.load(T) == table


def test_a_position_has_the_timeline_of_the_primary(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    start = PostgresReads.feed_start

    def later(self: PostgresReads) -> tuple[str, int]:
        epoch, collected = start(self)
        return epoch if self.event_at(0)[1] else on_timeline(epoch, 2), collected

    monkeypatch.setattr(PostgresReads, "feed_start", later)
    with ms.open(two.url, read_from=[two.replica_url]) as store:
        newest = store.position()
        view = store.replica(at_least=newest, wait=LONG)
        assert not view.from_primary
        assert view.position == newest, "so they sort like those of the primary"


def test_a_position_is_waited_for_or_the_primary_is_read(two: Pair, store: Store) -> None:
    two.caught_up(store)
    two.pause()
    table = store.tables.alter(T, ms.SetComment(f"{time.monotonic()}"))
    position = store.position()
    began = time.monotonic()
    view = store.replica(at_least=position, wait=0.3)
    assert time.monotonic() - began >= 0.3
    assert (view.from_primary, view.position) == (True, position)
    assert view.tables.load(T) == table
    assert store.replica(at_least=position, wait=0).from_primary
    two.resume()
    view = store.replica(at_least=position, wait=LONG)
    assert not view.from_primary
    assert view.position >= position
    assert view.tables.load(T) == table


def test_every_reader_works_and_nothing_is_written(two: Pair, store: Store) -> None:
    store.tables.create("lake.c.s.n", if_exists="return", properties={"k": "v"})
    view = store.replica(at_least=two.caught_up(store))
    assert sorted(view.tables.names("lake.c.s")) == ["n", "t", "u"]
    assert [one.name for one in view.tables.list("lake.c.s")] == sorted(view.tables.names("lake.c.s"))
    assert view.tables.page("lake.c.s", size=1).next_token is not None
    assert [one.name for one in view.find("lake", kind="table", name="n")] == ["n"]
    assert view.tables.load_many([T, "lake.c.s.no"])[1] is None
    assert not view.tables.exists("lake.c.s.no")
    assert list(view.partitions.names(T)) == []
    assert view.tags.on(T) == []
    assert next(iter(view.tables.history("lake.c.s.n"))).version == 1
    with pytest.raises(ms.EntityNotFound):
        view.tables.load("lake.c.s.no")
    with pytest.raises(ms.InvalidArgument, match="read-only"):
        view.tables.create("lake.c.s.w")
    with pytest.raises(ms.InvalidArgument, match="read-only"):
        view.tables.alter(T, ms.SetComment("w"))
    table = view.tables.load(T)
    assert store.tables.alter(table, ms.SetComment("of the replica")).comment == "of the replica"


def test_what_is_no_position(store: Store) -> None:
    there = store.position()
    for wrong in ("x", there[:-24] + "f" * 8, f"another-{there.partition('-')[2]}", 3):
        with pytest.raises(ms.InvalidArgument):
            store.replica(at_least=wrong)  # type: ignore[arg-type]
    ahead = f"{there.rpartition('-')[0]}-{10**6:016x}"
    with pytest.raises(ms.InvalidArgument, match="ahead"):
        store.replica(at_least=ahead, wait=0)


def test_a_wrong_position_is_no_fault_of_the_replica(two: Pair, store: Store) -> None:
    """Else a client with a position of before a restore would keep all others from the replicas."""
    there = two.caught_up(store)
    with pytest.raises(ms.InvalidArgument, match="not in this database"):
        store.replica(at_least=f"{there[:-8]}ffffffff")
    assert not store.replica(at_least=there, wait=LONG).from_primary


def test_what_cannot_be_read_from(two: Pair, tmp_path: Path) -> None:
    for wrong in (["sqlite:///a.db"], [f"{two.replica_url}?host=a,b"], "postgresql://x/y", [3]):
        with pytest.raises(ms.InvalidArgument):
            ms.open(two.url, read_from=wrong)  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidArgument, match="SQLite has no replicas"):
        ms.open(f"sqlite:///{tmp_path}/a.db", read_from=[two.replica_url])
    other = two.leader.create_database()
    ms.migrate(other)
    with pytest.raises(ms.InvalidArgument, match="not a replica of this database"):
        ms.open(two.url, read_from=[other])
    with ms.open(two.url) as store, pytest.raises(ms.InvalidArgument, match="read_from"):
        store.replica()


def test_an_open_that_is_refused_leaves_no_connection(two: Pair) -> None:
    with psycopg.connect(dsn(two.url), autocommit=True) as raw:

        def alone() -> bool:
            others = raw.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return others.fetchone() == (0,)

        assert wait_until(alone, LONG)
        for _ in range(2):
            with pytest.raises(ms.InvalidArgument):
                ms.open(two.url, read_from=[3])  # type: ignore[list-item]
            with pytest.raises(ms.InvalidArgument):
                asyncio.run(_opened(two.url))
        assert wait_until(alone, LONG)


async def _opened(url: str) -> None:
    await ms.open_async(url, read_from=["sqlite:///a.db"])


def test_views_of_requests_and_users(two: Pair, store: Store) -> None:
    two.caught_up(store)
    assert not store.bind(deadline=5.0).replica().from_primary
    with pytest.raises(ms.InvalidArgument, match="user"):
        store.as_user("ann").replica()


def test_a_replica_is_a_source_of_positions_by_itself(two: Pair, store: Store) -> None:
    position = two.caught_up(store)
    with ms.open(two.replica_url) as alone:
        assert alone.position() == position
        assert [change.position for change in alone.changes()][-1] == position


def test_async(two: Pair, store: Store) -> None:
    position = two.caught_up(store)

    async def read() -> None:
        opened = await ms.open_async(two.url, read_from=[two.replica_url])
        view = await opened.replica(at_least=position)
        assert (view.position, view.from_primary) == (position, False)
        assert (await view.tables.load(T)).path == T
        await opened.close()

    asyncio.run(read())


def test_a_replica_that_dies_is_left_for_the_primary_and_comes_back() -> None:
    with pair() as two, ms.open(two.url, read_from=[two.replica_url]) as store:
        two.caught_up(store)
        view = store.replica()
        assert not view.from_primary
        two.replica.kill()
        table = store.tables.alter(T, ms.SetComment("new"))
        assert view.tables.load(T) == table
        assert "from_primary=True" in repr(view)
        assert store.replica().from_primary
        with closing(ms.open(two.url, read_from=[two.replica_url])) as other:
            assert other.replica().from_primary, "a store opens without its replica"
        two.replica.start()
        ends = time.monotonic() + LONG
        while store.replica(at_least=store.position()).from_primary:
            assert time.monotonic() < ends


def test_a_silent_replica_is_left_for_the_primary(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packets are dropped: nobody is told. It is asked once, not by every view."""
    with (
        PostgresProxy("127.0.0.1", two.replica.port) as proxy,
        ms.open(two.url, read_from=[proxy.url_for(two.replica_url)]) as store,
    ):
        two.caught_up(store)
        monkeypatch.setattr(reads, "_ANSWERS", 0.2)
        with proxy.silent_to("client"):
            assert store.replica().from_primary
            asked = proxy.round_trips
            assert all(store.replica(at_least=at).from_primary for at in (None, store.position()))
            assert proxy.round_trips == asked


def test_a_replica_whose_connections_are_all_in_use_is_passed_over(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new view waits for none of them until its deadline; the replica did not fail, so it does not rest."""
    with ms.open(two.url, read_from=[two.replica_url], pool_size=1) as store:
        two.caught_up(store)
        monkeypatch.setattr(reads, "_ANSWERS", 0.1)
        assert store._replicas is not None
        ((replica,),) = (store._replicas._replicas,)
        with replica.backend.pool.connection():  # type: ignore[attr-defined]
            assert store.replica().from_primary
        assert not replica.rests


def test_a_view_goes_on_while_the_primary_is_silent(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a new connection to the replica the primary is asked, but not until the deadline of the call."""
    with (
        PostgresProxy("127.0.0.1", two.leader.port) as primary,
        PostgresProxy("127.0.0.1", two.replica.port) as replica,
        ms.open(primary.url_for(two.url), read_from=[replica.url_for(two.replica_url)]) as store,
    ):
        two.caught_up(store)
        view = store.bind(deadline=5.0).replica()
        monkeypatch.setattr(reads, "_ANSWERS", 0.5)
        with primary.silent_to("client"):
            replica.cut_all()
            assert view.tables.load(T).path == T
        assert not view.from_primary


@contextmanager
def _addressed(two: Pair, way: str) -> Iterator[str]:
    """Give the replica's URL, or one through pgbouncer."""
    if way == "direct":
        yield two.replica_url
    else:
        with PgBouncer(two.replica, pool_size=1) as pooler:
            yield pooler.url(two.url.rpartition("/")[2])


@pytest.mark.parametrize("way", ["direct", "pooled"])
def test_a_promoted_replica_is_not_read(way: str) -> None:
    """It commits changes of its own at positions of the primary: views that are open notice that, and new ones too."""
    if way == "pooled" and find_pgbouncer() is None:
        pytest.skip("needs pgbouncer")
    with (
        pair() as two,
        _addressed(two, way) as replica_url,
        ms.open(two.url, read_from=[replica_url]) as store,
    ):
        two.caught_up(store)
        view = store.replica()
        assert view.tables.load(T).version == 1
        assert not view.from_primary
        assert store._replicas is not None
        (known,) = store._replicas._replicas
        opened = known.backend.opened
        two.promote()
        with psycopg.connect(dsn(replica_url), autocommit=True) as raw:  # behind a pooler only this client is told
            assert raw.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        with ms.open(two.replica_url) as other:
            other.tables.alter(T, ms.SetComment("there"))
        table = store.tables.alter(T, ms.SetComment("here"))
        assert store.position().rpartition("-")[2][:16] == view_position_of(two).rpartition("-")[2][:16]
        assert opened == known.backend.opened, "the connection was there before"
        assert view.tables.load(T) == table
        assert "from_primary=True" in repr(view)
        for new in (store.replica(), store.replica(at_least=store.position(), wait=0.1)):
            assert new.from_primary
            assert new.tables.load(T) == table
        with ms.open(two.url, read_from=[replica_url]) as later:
            assert later.replica().from_primary, "a store opens all the same"


# --- the primary, where a URL leads to replicas as well


def _both(two: Pair, options: str = "") -> str:
    """Return a URL with both servers, the replica first."""
    name = two.url.rpartition("/")[2]
    ports = f"{two.replica.port},{two.leader.port}"
    return f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1&port={ports}{options}"


@pytest.mark.parametrize("options", ["", "&load_balance_hosts=random", "&target_session_attrs=any"])
def test_of_several_servers_the_primary_is_read(two: Pair, store: Store, options: str) -> None:
    two.caught_up(store)
    two.pause()
    table = store.tables.alter(T, ms.SetComment(f"{time.monotonic()}"))
    for _ in range(8):
        with ms.open(_both(two, options)) as opened:
            assert opened.tables.load(T) == table
    ms.migrate(_both(two, options))


def test_several_servers_in_the_environment(two: Pair, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    two.caught_up(store)
    two.pause()
    table = store.tables.alter(T, ms.SetComment(f"{time.monotonic()}"))
    monkeypatch.setenv("PGHOST", "127.0.0.1,127.0.0.1")
    monkeypatch.setenv("PGPORT", f"{two.replica.port},{two.leader.port}")
    with ms.open(f"postgresql+psycopg://postgres@/{two.url.rpartition('/')[2]}") as opened:
        assert opened.tables.load(T) == table


def test_a_replica_is_not_asked_for_among_several_servers(two: Pair) -> None:
    for wanted in ("standby", "prefer-standby", "read-only"):
        with pytest.raises(ms.InvalidArgument, match="read_from"):
            ms.open(_both(two, f"&target_session_attrs={wanted}"))
    with pytest.raises(ms.InvalidArgument, match="several servers"):
        ms.open(two.url, read_from=[f"{two.replica_url}?load_balance_hosts=random"])


def test_an_address_that_leads_to_a_replica_later_is_not_read(two: Pair, store: Store) -> None:
    """The primary is restarted as a replica, or a name of DNS leads to another server: the state may be old."""
    two.caught_up(store)
    with (
        PostgresProxy("127.0.0.1", two.leader.port) as proxy,
        ms.open(proxy.url_for(two.url), deadline=LONG) as opened,
        ThreadPoolExecutor(1) as pool,
    ):
        opened.tables.load(T)
        two.pause()
        table = store.tables.alter(T, ms.SetComment(f"{time.monotonic()}"))
        proxy._server = ("127.0.0.1", two.replica.port)
        proxy.cut_all()
        with pytest.raises(ms.BackendUnavailable, match="is a replica") as caught:
            opened.tables.load(T)
        assert caught.value.transient
        written = pool.submit(opened.tables.alter, table, ms.SetComment("after all"))
        proxy._server = ("127.0.0.1", two.leader.port)
        assert written.result(LONG).version == table.version + 1
        assert opened.tables.load(T).version == table.version + 1


# --- the rules, and the view without each


def _whole_after_a_gap(two: Pair) -> bool:
    """A change with a lower position than the newest is committed later: the view promised no more than is shown."""
    with ms.open(two.url, read_from=[two.replica_url]) as store, ms.open(two.url) as late:
        two.caught_up(store)
        with psycopg.connect(dsn(two.url), autocommit=True) as raw, ThreadPoolExecutor(1) as pool:
            raw.execute(_STALL)
            raw.execute("SELECT pg_advisory_lock(7)")
            writing = pool.submit(late.tables.alter, "lake.c.s.u", ms.SetComment(f"{time.monotonic()}"))
            while not raw.execute(_WAITS).fetchall()[0][0]:
                assert not writing.done()
            store.tables.alter(T, ms.SetComment(f"{time.monotonic()}"))
            version = store.tables.load(T).version
            ends = time.monotonic() + LONG
            while store.replica().tables.load(T).version != version:
                assert time.monotonic() < ends
            view = store.replica()
            before = view.tables.load("lake.c.s.u")
            raw.execute("SELECT pg_advisory_unlock(7)")
            table = writing.result(LONG)
            raw.execute("DROP FUNCTION stall CASCADE")
        (late_one,) = [c for c in store.changes() if c.entity_id == table.id and c.version == table.version]
        return before.version == table.version - 1 and view.position < late_one.position


_STALL = b"""CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON operation DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.path_after = 'lake.c.s.u') EXECUTE FUNCTION stall()"""
_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def _whole_after_a_restart(two: Pair) -> bool:
    """Behind the same address is a server that is further back, as after a crash: the view does not go back."""
    with (
        two.another() as behind,
        PostgresProxy("127.0.0.1", two.replica.port) as proxy,
        ms.open(two.url, read_from=[proxy.url_for(two.replica_url)]) as store,
    ):
        behind.pause()
        table = store.tables.alter(T, ms.SetComment(f"{time.monotonic()}"))
        view = store.replica(at_least=two.caught_up(store), wait=0.1)
        assert view.tables.load(T) == table
        assert not view.from_primary
        proxy._server = ("127.0.0.1", behind.replica.port)
        proxy.cut_all()
        return view.tables.load(T) == table


def _promises_the_newest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source, "_after", lambda known, shown: known._replace(whole=shown.newest))


def _forgets_no_connection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PostgresReads, "opened", property(lambda self: "always the same"))


RULES: dict[str, tuple[Callable[[Pair], bool], Callable[[pytest.MonkeyPatch], None]]] = {
    "promise what is whole": (_whole_after_a_gap, _promises_the_newest),
    "look again after a connection was opened": (_whole_after_a_restart, _forgets_no_connection),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("broken", [False, True])
def test_a_rule_keeps_what_was_promised(two: Pair, rule: str, broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, break_it = RULES[rule]
    if broken:
        break_it(monkeypatch)
    assert whole(two) is not broken


def test_readers_beside_a_writer_see_what_they_were_told(two: Pair, store: Store) -> None:
    """A position is passed on; each view that must show it shows the write, and what every view promises is there."""
    told: list[tuple[str, int]] = []
    stop = threading.Event()

    def write() -> None:
        with ms.open(two.url) as writer:
            for n in range(60):
                version = writer.tables.alter(T, ms.SetComment(str(n))).version
                told.append((writer.position(), version))
        stop.set()

    def read(options: dict[str, Any]) -> list[tuple[str, int, int]]:
        seen: list[tuple[str, int, int]] = []
        while not stop.is_set() or len(seen) < 10:
            position, version = told[-1] if told else (None, 0)
            view = store.replica(**({"at_least": position} if options["told"] else {}), wait=options["wait"])
            shown = view.tables.load(T).version
            seen.append((view.position, version if options["told"] else 0, shown))
        return seen

    with ThreadPoolExecutor(4) as pool:
        writing = pool.submit(write)
        options = [{"told": told, "wait": wait} for told in (True, False) for wait in (0.0, 1.0)]
        seen = [one for reading in [pool.submit(read, o) for o in options[:3]] for one in reading.result(LONG)]
        writing.result(LONG)
    assert len(seen) > 30
    assert all(shown >= least for _, least, shown in seen)
    for position, _, shown in seen:
        promised = max((version for at, version in told if at <= position), default=0)
        assert shown >= promised


def view_position_of(two: Pair) -> str:
    with ms.open(two.replica_url) as store:
        return store.position()
