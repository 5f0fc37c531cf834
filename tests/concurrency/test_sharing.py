"""One store and many who use it: threads, forked children, a pooler between, a server that goes away and comes back."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import is_sqlite
from tests.concurrency.test_no_locks import mix
from tests.concurrency.workers import Job, Team, Turn
from tests.servers.pgbouncer import PgBouncer

pytestmark = pytest.mark.one_in(3)

THREADS = 16


def use_everything(store: ms.Store, number: int) -> None:
    """Use a separate schema, and the one that all share."""
    own = f"lake.cat.own{number}"
    schema = store.schemas.create(own)
    table = store.tables.create("t", parent=schema, columns=[ms.Column("id", "long")])
    table = store.tables.alter(table, ms.AddColumn("name", "string"), ms.SetProperty("n", str(number)))
    assert [c.name for c in store.tables.load(f"{own}.t").columns] == ["id", "name"]
    for _ in range(5):
        with pytest.raises(ms.NotEmpty):
            store.schemas.drop(schema)  # a pipeline that fails in its middle
    with store.transaction() as tx:
        count = len(list(tx.tables.list(own)))
        tx.tables.create(f"{own}.u", comment=str(count))
        tx.tables.alter(table, ms.SetComment("in a transaction"))
    store.tables.alter("lake.cat.s.t", ms.SetProperty(f"p{number}", "x"))
    assert store.tables.create_many(own, [{"name": f"m{n}"} for n in range(20)]) == 20
    assert len(list(store.tables.list(own, page_size=7))) == 22
    store.tables.rename(f"{own}.m0", f"lake.cat.s.moved{number}")
    assert store.schemas.drop(own, cascade=True)
    assert store.schemas.restore(own).id == schema.id
    assert [v.action for v in store.schemas.history(own)] == ["create", "drop", "restore"]
    assert store.schemas.drop(own, cascade=True)


def check_all(url: str, numbers: int) -> None:
    with ms.open(url) as store:
        assert set(store.tables.load("lake.cat.s.t").properties) == {f"p{n}" for n in range(numbers)}
        assert len(list(store.tables.names("lake.cat.s"))) == numbers + 1
    assert violations(url) == []


def test_threads_of_one_store(url: str) -> None:
    """16 threads use one store."""
    seed(url, "lake.cat.s.t")
    with ms.open(url) as store, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda n: use_everything(store, n), range(THREADS)))
    check_all(url, THREADS)


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], None]], int]]:
    """Fork children that run a function and leave at once; they are reaped, and must have come to a good end."""
    pids: list[int] = []

    def start(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(60)
                work()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
        return pid

    yield start
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


Fork = Callable[[Callable[[], None]], int]


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_store_after_fork_in_parent_and_children(url: str, fork: Fork) -> None:
    """A store that was in use before a fork is used by the parent and by three children at once."""
    seed(url, "lake.cat.s.t")
    with ms.open(url) as store:
        store.ping()
        children = [fork(lambda n=n: use_everything(store, n)) for n in range(3)]  # type: ignore[misc]
        use_everything(store, 3)
        for pid in children:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    check_all(url, 4)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_child_goes_on_after_its_parent_closed(url: str, fork: Fork) -> None:
    """The parent closes its store, the last one besides the child's: what the child commits then is not lost.

    On SQLite the last to close a file removes its log. A child that inherits a connection takes its
    parent's locks for its own, so that the log is removed under it (seen: five commits lost).
    """
    seed(url)
    to_child, from_child = os.pipe(), os.pipe()
    with ms.open(url) as store:
        store.ping()

        def work() -> None:
            store.tables.create("lake.cat.s.before")
            os.write(from_child[1], b"1")
            os.read(to_child[0], 1)
            for n in range(5):
                store.tables.create(f"lake.cat.s.after{n}")
            os.write(from_child[1], b"2")
            os.read(to_child[0], 1)

        fork(work)
        assert os.read(from_child[0], 1) == b"1"
        store.tables.create("lake.cat.s.parent")
    os.write(to_child[1], b"1")
    assert os.read(from_child[0], 1) == b"2"
    with ms.open(url) as again:
        assert len(list(again.tables.names("lake.cat.s"))) == 7
    os.write(to_child[1], b"2")


def test_pgbouncer_in_transaction_mode(pgbouncer: PgBouncer, team: Team) -> None:
    """Four processes share two server connections, which change with every transaction."""
    direct = pgbouncer.server.create_database()
    try:
        ms.migrate(direct)
        url = pgbouncer.url(direct.rpartition("/")[2])
        seed(url, "lake.cat.s.t")
        team.run(url, [Job(use_store, n) for n in range(4)])
        check_all(direct, 4)
        with ms.open(url) as store:
            assert store.gc(retention=timedelta(0)).entities > 0
            assert len(list(store.changes())) > 0
    finally:
        pgbouncer.server.drop_database(direct)


def use_store(turn: Turn, number: int) -> None:
    turn.meet()
    use_everything(turn.store, number)


def test_aborted_pipelines_do_not_spoil_a_connection(postgres_url: str) -> None:
    """What a pipeline prepared is not taken for prepared when the pipeline was aborted before."""
    seed(postgres_url)
    with ms.open(postgres_url) as store:
        for aborted in range(1, 8):
            schema = store.schemas.create(f"lake.cat.a{aborted}")
            table = store.tables.create("t", parent=schema)
            for _ in range(aborted):
                with pytest.raises(ms.NotEmpty):
                    store.schemas.drop(schema)
            store.tables.drop(table)
            assert store.schemas.drop(schema)
    assert violations(postgres_url) == []


def test_mix_on_one_store_in_threads(url: str) -> None:
    """Threads that get in each other's way: no error but those of the surface, and nothing broken."""
    seed(url)
    with ms.open(url) as store, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> None:
            dice = random.Random(number)
            for _ in range(2 if is_sqlite(url) else 8):
                mix(store, f"lake.cat.s{dice.randrange(2)}", number, dice)

        list(pool.map(work, range(8)))
    assert violations(url) == []
