"""A replica that lacks commits takes over: the store notices, and what it gave before is not given again."""

from __future__ import annotations

import io
import itertools
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.feed import feed
from metastore.past import consumers, revert
from metastore.port.leases import PER_TIMELINE
from metastore.transaction.transaction import run_transaction
from tests.concurrency.checks import seed, violations
from tests.progress.replica import Replica, primary
from tests.servers.postgres import PostgresServer, database_of
from tests.servers.process import wait_until

pytestmark = pytest.mark.postgres
T, LOST = "lake.cat.s.t", "lake.cat.s.lost"
LONG = 30.0
_ANOTHER = """INSERT INTO operation SELECT (jsonb_populate_record(o, jsonb_build_object(
  'operation_id', gen_random_uuid(), 'version', o.version + 1000, 'seq', nextval('change_seq')))).*
FROM operation o WHERE seq = (SELECT max(seq) FROM operation)"""
"""A change that has drawn its position, and commits later."""


@dataclass
class _World:
    """A leader, and a replica that follows it until it is halted; one URL for both."""

    leader: PostgresServer
    replica: Replica
    url: str

    def raw(self) -> psycopg.Connection:
        return psycopg.connect(self.leader.dsn(database_of(self.url.partition("?")[0])), autocommit=True)

    def halt_replica(self) -> None:
        """Let it get what was committed by now, and nothing more."""
        with self.raw() as raw, psycopg.connect(self.replica.dsn(), autocommit=True) as other:
            ((end,),) = raw.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
            there = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            assert wait_until(lambda: other.execute(there, [end]).fetchone() == (True,), LONG)
            raw.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            raw.execute("SELECT pg_reload_conf()")
        self.replica.halt()

    def fail_over(self) -> None:
        self.leader.kill()
        PostgresServer.start(self.replica)
        self.replica.promote()


@pytest.fixture
def world() -> Iterator[_World]:
    with primary() as leader:
        name = database_of(leader.create_database(f"t{secrets.token_hex(4)}"))
        ms.migrate(leader.url(name))
        seed(leader.url(name), T)
        with Replica(leader) as replica:
            hosts = f"host=127.0.0.1,127.0.0.1&port={leader.port},{replica.port}&target_session_attrs=read-write"
            yield _World(leader, replica, f"postgresql+psycopg://{leader.user}@/{name}?{hosts}")


def _newest(store: ms.Store) -> str:
    return list(store.changes())[-1].position


class _HeldError(Exception):
    """A call has read all that it needs, and would commit now."""


def _held(monkeypatch: pytest.MonkeyPatch, module: ModuleType, call: Callable[[], Any]) -> tuple[Any, ...]:
    """Stop a call before its transaction; return what begins it."""

    def hold(*arguments: Any) -> None:
        raise _HeldError(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "run_transaction", hold)
        with pytest.raises(_HeldError) as stopped:
            call()
    return stopped.value.args


def _under_way(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, waiting: list[ms.Consumer], positions: list[str]
) -> Callable[[], None]:
    """Begin calls before the fail-over; return what goes on with them afterwards."""
    (behind, ahead, batch), (kept, before_lost, lost) = waiting, positions
    young, difference = store.consumers.get("young", start=kept), store.diff(before_lost, lost)
    ahead.commit(lost)
    read = behind.read()
    consumed = _held(monkeypatch, consumers, lambda: batch.run(lambda tx, changes: None))
    reverted = _held(monkeypatch, revert, lambda: store.revert("lake.cat.s", to=kept))

    def look() -> None:
        with pytest.raises(ms.HistoryGone):
            list(difference)
        with pytest.raises(ms.VersionConflict, match="another server has taken over"):
            behind.commit(read[-1].position)
        assert behind.read()[0].path_after == T
        for consumer, error in ((ahead, ms.VersionConflict), (young, ms.EntityNotFound)):
            with pytest.raises(error, match="another server that took over lost"):
                consumer.read()
        assert ahead.position.endswith(kept.rpartition("-")[2]), "it goes on from there"
        with pytest.raises(ms.VersionConflict, match="another server has taken over"):
            run_transaction(*consumed)
        undone = [one.difference.path_before for one in run_transaction(*reverted).wanted]
        assert undone == [T], "not the lost table, whose id may be another one's"

    return look


def _across(store: ms.Store, world: _World) -> list[str | None]:
    """Fail over in the middle of a function; return what its runs read."""
    runs = []

    def fn(tx: ms.Transaction) -> None:
        runs.append(tx.tables.load(T).comment)
        if len(runs) == 1:
            world.fail_over()
            assert store.tables.load(T).comment == "kept"
        tx.tables.alter(T, ms.SetProperty("ran", str(len(runs))))

    store.run(fn)
    return runs


def _read_from_the_old_leader(world: _World) -> bool:
    """Start it again as a replica that follows nobody; return whether a view reads from it."""
    (world.leader.data / "standby.signal").touch()
    world.leader.start()
    old = world.leader.url(database_of(world.url.partition("?")[0]))
    with ms.open(world.url, read_from=[old]) as store:
        return not store.replica().from_primary


def test_lost_commits_are_noticed(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_PAGE", 1)  # so that a reader asks between two changes
    gone = threading.Event()
    with ms.open(world.url, cache=ms.Cache("validate"), deadline=LONG) as store:
        store.leases.acquire("work").release()
        store.tables.load(T)
        kept = _newest(store)
        waiting = [store.consumers.get(name, start=kept) for name in ("behind", "ahead", "batch")]
        with world.raw() as late:
            late.execute("BEGIN")
            late.execute(_ANOTHER)
            store.tables.alter(T, ms.SetComment("kept"))
            world.halt_replica()
            late.execute("COMMIT")
        before_lost = _newest(store)  # its change is kept; one with a lower position is lost
        reader = store.changes(after=kept)
        next(reader)
        lost_table = store.tables.create(LOST)
        held = store.tables.alter(T, ms.SetComment("lost"))
        tokens = {name: store.leases.acquire(name, ttl=1.0).token or 0 for name in ("work", "a new name")}
        store.leases.acquire("renewed", ttl=3600.0, renew_every=900.0, on_lost=lambda _: gone.set())
        lost = _newest(store)
        not_begun, bare, copy = store.changes(after=lost), lost[:-8], io.BytesIO()
        exported = store.export_to(copy).position
        then, gone_then = store.at(kept), store.at(lost)
        assert gone_then.tables.load(T).comment == "lost"
        look_at_calls_under_way = _under_way(store, monkeypatch, waiting, [kept, before_lost, lost])

        assert _across(store, world) == ["lost", "kept"], "the function runs again"

        assert gone.wait(LONG), "the lease that is lost is renewed at once, and not in 15 minutes"
        with pytest.raises(ms.EntityNotFound):
            store.tables.load(LOST)
        made = store.tables.create("lake.cat.s.made")
        assert made.id >= lost_table.id  # perhaps the same id: nothing that was remembered of it counts
        assert store.tables.alter(held, ms.SetProperty("k", "v")).comment == "kept"
        assert [change.path_after for change in store.changes(after=kept)][-1] == T
        for position in (before_lost, lost, bare, exported):
            with pytest.raises(ms.HistoryGone, match="another server has taken over"):
                list(store.changes(after=position))
        for begun in (reader, not_begun):
            with pytest.raises(ms.HistoryGone):
                list(begun)
        assert then.tables.load(T).comment is None
        with pytest.raises(ms.HistoryGone):
            gone_then.tables.load(T)
        look_at_calls_under_way()
        again = list(store.changes(limit=3))[-1].position
        assert list(store.changes(after=again)), "positions of this timeline go on"
        assert list(store.changes(after=before_lost.replace("-", "t00000002-"))), "also beside the gap"
        for name, token in tokens.items():
            assert (store.leases.acquire(name, timeout=LONG).token or 0) > PER_TIMELINE
            assert token < PER_TIMELINE
    assert not _read_from_the_old_leader(world), "it shows what was lost"
    assert violations(world.replica.url(database_of(world.url.partition("?")[0]))) == []


READS: dict[str, Callable[[ms.Store, Any, Any, Any], object]] = {
    "history": lambda store, _, table, __: list(store.tables.history(table)),
    "history_page": lambda store, _, table, __: store.tables.history_page(table),
    "owner": lambda store, _, table, __: store.owners.of(table),
    "tags": lambda store, _, table, __: store.tags.on(table),
    "partitions": lambda store, _, table, __: list(store.partitions.list(table)),
    "statistics": lambda store, _, table, __: store.statistics.of_partitions(table, ["p"]),
    "children": lambda store, schema, _, __: list(store.tables.list(schema)),
    "find": lambda store, schema, _, __: list(store.find(schema)),
    "grants": lambda store, _, __, role: list(store.roles.grants(role)),
    "members": lambda store, _, __, role: list(store.roles.members(role)),
    "changes": lambda store, _, table, __: list(store.changes(under=table)),
    "diff": lambda store, _, table, __: list(store.diff(_newest(store), under=table)),
    "revert": lambda store, _, table, __: store.revert(table, to=_newest(store)),
    "export": lambda store, _, table, __: store.export_to(io.BytesIO(), table),
    "stage": lambda store, _, table, __: _stage(store, table),
}


def _stage(store: ms.Store, table: Any) -> None:
    with store.leases.acquire("staging") as lease:
        try:
            lease.stage(table, "key", "value")
        finally:
            assert lease.publish() == (), "nor is it staged for that one"


def _made(store: ms.Store, name: str) -> tuple[Any, Any, Any, Any]:
    schema = store.schemas.create(f"lake.cat.{name}")
    table, role = store.tables.create("t", parent=schema), store.roles.create(f"lake.{name}")
    return schema, table, role, store.run(lambda tx: tx.tables.create("of a transaction", parent=schema))


def test_a_lost_entity_is_not_the_one_that_has_its_id_now(world: _World) -> None:
    """Not for the first call that meets the new server, nor for a later one, nor in a cache."""
    stores = {what: ms.open(world.url, pool_size=1) for what in READS}
    with ms.open(world.url, cache=ms.Cache("validate")) as store:
        world.halt_replica()
        for n in range(40):  # a server that takes over skips up to 32 numbers
            store.tables.create(f"lake.cat.s.lost{n}")
        lost = _made(store, "lost")
        drop = store.tables.begin_drop(lost[1])
        world.fail_over()
        numbers = (store.tables.create(f"lake.cat.s.made{n}").id for n in range(99))
        assert next(number for number in numbers if number == lost[0].id - 1)
        made = _made(store, "made")
        assert [entity.id for entity in made] == [entity.id for entity in lost]
        for what, read in READS.items():
            schema, table, role, of_transaction = lost
            for one, of_it in itertools.product((stores[what], store), (table, of_transaction)):
                with pytest.raises(ms.EntityNotFound, match="not there any more"):
                    read(one, schema, of_it, role)
            stores[what].close()
        for _ in range(2):  # the second time from memory
            assert store.tables.load(made[1]).path == "lake.cat.made.t"
        calls: list[Callable[[], object]] = [partial(store.tables.load, one) for one in (lost[1], lost[3])]
        for call in (*calls, drop.entity, drop.started, drop.finish):
            with pytest.raises(ms.EntityNotFound):
                call()
        assert not any(store.tables.drop(one) for one in (lost[1], lost[3]))
        assert store.verify() == []
