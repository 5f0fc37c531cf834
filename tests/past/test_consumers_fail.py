"""Consumers where much goes wrong: killed instances, gc beside slow ones, a copy of the database, a fail-over."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.backends.postgres.readers import PostgresReaders
from metastore.errors import InvalidArgument
from metastore.transaction.transaction import Transaction
from tests.progress.replica import Replica, primary
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

COUNTS = """
import sys, time, metastore as ms
from metastore.errors import MetastoreError, VersionConflict
def effect(tx, changes):
    table = tx.tables.load("m.c.s.counter")
    new = sum(c.kind == "table" and c.action == "create" and "counter" not in c.path_after for c in changes)
    said = table.properties.get("order", "")
    names = [c.path_after.rpartition(".")[2] for c in changes if c.kind == "table" and c.action == "create"]
    order = said + "".join(f"{name} " for name in names if name != "counter")
    if new:
        tx.tables.alter(table, ms.SetProperty("order", order))
with ms.open(sys.argv[1], deadline=10) as store:
    print("begun", flush=True)
    while True:
        try:
            if not store.consumers.get("c").run(effect, limit=3):
                time.sleep(0.01)
        except VersionConflict:
            pass
"""


def seed(store: Store) -> None:
    """Make what the counter counts in."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.counter", parents=True)


def order(store: Store) -> list[str]:
    """Return the tables that were counted, in their order."""
    return store.tables.load("m.c.s.counter").properties.get("order", "").split()


class Instance:
    """A process that counts until it is killed."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", COUNTS, url]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "begun\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("server", [pytest.param("sqlite", marks=pytest.mark.long), "postgres"])
def test_instances_that_are_killed_at_any_moment(server: str, request: pytest.FixtureRequest) -> None:
    """Two instances beside a writer; one after the other is killed, and another takes its place."""
    url: str = request.getfixturevalue(f"{server}_url")
    choose = random.Random(1)
    with ms.open(url) as store:
        seed(store)
        store.consumers.get("c", start="beginning")
        instances = [Instance(url) for _ in range(2)]
        try:
            for n in range(30):
                store.tables.create(f"m.c.s.t{n}")
                if n % 10 == 9:
                    before = len(order(store))
                    assert wait_until(lambda before=before: len(order(store)) > before, 60)  # type: ignore[misc]
                    instances.pop(choose.randrange(2)).kill()
                    instances.append(Instance(url))
            assert wait_until(lambda: len(order(store)) >= 30, 60)
        finally:
            for instance in instances:
                instance.kill()
        assert order(store) == [f"t{n}" for n in range(30)]
        assert store.verify() == []


@pytest.mark.postgres
@pytest.mark.parametrize("cut", ["cut_after_send", "cut_before_send"])
@pytest.mark.parametrize("move", ["commit", "reset", "run"])
def test_a_move_without_an_answer(postgres_url: str, postgres_address: tuple[str, int], move: str, cut: str) -> None:
    """The caller must not hear that another instance was faster: it would discard what no instance reads again."""
    with PostgresProxy(*postgres_address) as proxy, ms.open(proxy.url_for(postgres_url)) as store:
        seed(store)
        consumer = store.consumers.get("c", start="beginning")
        newest = consumer.read()[-1].position
        order = getattr(proxy, cut)(lambda message: b"UPDATE consumer" in message)
        consumer.run(lambda tx, changes: None) if move == "run" else getattr(consumer, move)(newest)
        assert order.fired.is_set()
        assert store.consumers.get("c").position == consumer.position == newest
        assert store.verify() == []


@pytest.mark.parametrize("cut", ["cut_after_send", "cut_before_send"])
def test_a_pin_without_an_answer(postgres_url: str, postgres_address: tuple[str, int], cut: str) -> None:
    """Nor is a removal whose answer was lost told as one that found nothing."""
    with PostgresProxy(*postgres_address) as proxy, ms.open(proxy.url_for(postgres_url)) as store:
        store.metalakes.create("lake")
        store.consumers.get("c")
        getattr(proxy, cut)(lambda message: b"INTO pin" in message)
        pin = store.pin("release")
        assert store.pins() == [pin]
        with pytest.raises(ms.EntityAlreadyExists):
            store.pin("release")
        for remove, name in ((store.unpin, "release"), (store.consumers.drop, "c")):
            getattr(proxy, cut)(lambda message: b"DELETE FROM" in message)
            assert remove(name)
            assert not remove(name)
            for n in (1, 2):  # the third sending finds the row that the second one left
                getattr(proxy, cut)(lambda message: b"DELETE FROM" in message, nth=n)
            assert not remove(name)
        assert store.verify() == []


@pytest.mark.postgres
def test_a_pin_whose_answer_does_not_come(postgres_url: str, postgres_address: tuple[str, int]) -> None:
    """The error must not say that nothing was written."""
    calls: dict[bytes, Callable[[Store], object]] = {
        b"INTO pin": lambda store: store.pin("p"),
        b"DELETE FROM pin": lambda store: store.unpin("p"),
        b"DELETE FROM consumer": lambda store: store.consumers.drop("c"),
    }
    with PostgresProxy(*postgres_address) as proxy, ms.open(postgres_url) as other:
        other.metalakes.create("lake")
        other.consumers.get("c")
        with ms.open(proxy.url_for(postgres_url), deadline=0.5) as store:
            for words, call in calls.items():

                def hush(sent: bytes, words: bytes = words) -> bool:
                    if words in sent:
                        proxy.open_to["client"].clear()
                    return False

                proxy.cut_after_send(hush)
                with pytest.raises(ms.OutcomeUnknown) as caught:
                    call(store)
                proxy.open_to["client"].set()
                assert other.outcome(caught.value.operation_id) == ms.Outcome("committed", True)
                with pytest.raises(ms.OperationIdReused):  # not that the metalake was dropped
                    other.metalakes.drop("lake", operation_id=caught.value.operation_id)
        assert (other.pins(), other.consumers.list()) == ([], [])


@pytest.mark.postgres
def test_of_two_who_pin_one_name_at_one_instant_one_gets_it(postgres_url: str) -> None:
    """Also if they are alike, and the clock shows both the same microsecond."""
    with ms.open(postgres_url, principal="job") as store:
        readers = store._session.backend.readers
        assert isinstance(readers, PostgresReaders)
        readers._fetch = lambda *_: [(1,)]  # what it asks for first: the database's clock
        assert [bool(readers.pin("p", 0, "job", None)) for _ in range(2)] == [True, False]


def test_gc_beside_a_slow_consumer(store: Store) -> None:
    """gc runs all the time, without retention; the consumer reads everything all the same, in order."""
    seed(store)
    slow, done, collected = store.consumers.get("slow"), threading.Event(), list[int]()

    def collect() -> None:
        while not done.is_set():
            collected.append(store.gc(retention=timedelta(0), keep_versions=1).versions)

    thread = threading.Thread(target=collect)
    thread.start()
    seen, n = list[str | None](), 0
    try:
        while n < 60 or slow.lag().changes:
            if n < 60:
                store.tables.alter("m.c.s.counter", ms.SetComment(str(n)))
                n += 1
            if n % 7 == 0 or n == 60:
                batch = slow.read(5)
                seen += [change.entity.comment for change in batch if isinstance(change.entity, ms.Table)]
                if batch:
                    slow.commit(batch[-1].position)
    finally:
        done.set()
        thread.join()
    assert seen == [str(n) for n in range(60)]
    collected += [store.gc(retention=timedelta(0), keep_versions=1).versions for _ in range(2)]
    assert sum(collected) > 0
    assert store.verify() == []


def test_a_copy_of_the_database_has_positions_of_its_own(tmp_path: Path) -> None:
    """A backup was put back beside the original: both go on, and neither takes a position of the other."""
    original, copy = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    with ms.open(original) as store:
        seed(store)
        consumer = store.consumers.get("c", start="beginning")
        consumer.commit(consumer.read(2)[-1].position)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with ms.open(original) as store, ms.open(copy) as other:
        for n in range(3):
            store.tables.create(f"m.c.s.a{n}")
            other.tables.create(f"m.c.s.b{n}")
        mine, theirs = store.consumers.get("c"), other.consumers.get("c")
        read, copied = mine.read(), theirs.read()
        assert [c.path_after for c in read] == ["m.c.s", "m.c.s.counter", "m.c.s.a0", "m.c.s.a1", "m.c.s.a2"]
        assert [c.path_after for c in copied] == ["m.c.s", "m.c.s.counter", "m.c.s.b0", "m.c.s.b1", "m.c.s.b2"]
        with pytest.raises(InvalidArgument, match=r"of another database|not in this database"):
            theirs.commit(read[-1].position)
        with pytest.raises(InvalidArgument, match=r"of another database|not in this database"):
            list(other.changes(after=read[-1].position))
        with pytest.raises(InvalidArgument, match=r"of another database|not in this database"):
            other.at(read[-1].position)
        theirs.commit(copied[-1].position)
        mine.commit(read[-1].position)
        assert mine.read() == theirs.read() == []


def test_a_database_that_lost_its_newest_changes(tmp_path: Path) -> None:
    """A backup was put back in place: the consumer's place lies in what is lost, and it says so instead of going on."""
    url = f"sqlite:///{tmp_path}/a.db"
    with ms.open(url) as store:
        seed(store)
        start = store.position()
    shutil.copy(tmp_path / "a.db", tmp_path / "backup.db")
    with ms.open(url) as store:
        for n in range(3):
            store.tables.create(f"m.c.s.lost{n}")
        lost = [change.position for change in store.changes(after=start)]
    shutil.copy(tmp_path / "backup.db", tmp_path / "a.db")
    with ms.open(url) as store:
        consumer = store.consumers.get("c", start="beginning")
        for n in range(3):
            store.tables.create(f"m.c.s.new{n}")
        with pytest.raises(InvalidArgument):
            consumer.commit(lost[-1])
        assert [c.path_after for c in consumer.read()][-3:] == [f"m.c.s.new{n}" for n in range(3)]


def test_its_number_may_be_another_changes_at_a_server_that_lost_it(store: Store) -> None:
    """Another instance may have moved it there: then it is elsewhere, and says so once."""
    seed(store)
    consumer = store.consumers.get("c")
    place = consumer._at
    lost = place.position[:-8] + "0" * 8
    consumer._at = place._replace(position=lost, run="of the server that had it")
    with pytest.raises(ms.VersionConflict, match="took over lost its last moves"):
        consumer.read()
    assert consumer.read() == []
    assert consumer.position == place.position


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_a_fail_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The primary dies while an instance works and another process writes: nothing is lost, doubled or reordered."""
    with primary() as leader:
        name = urlsplit(leader.create_database()).path.lstrip("/")
        ms.migrate(leader.url(name))
        with Replica(leader) as replica:
            both = (
                f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1"
                f"&port={leader.port},{replica.port}&target_session_attrs=read-write"
            )
            with ms.open(both, deadline=60.0) as store:
                seed(store)
                store.consumers.get("c", start="beginning")
                in_hand = store.consumers.get("in hand")
                working, over = threading.Event(), threading.Event()
                thread = threading.Thread(target=_count_on, args=(store, working, over))
                thread.start()
                try:
                    for n in range(40):
                        store.tables.create(f"m.c.s.t{n}")
                        if n == 20:
                            assert working.wait(60)
                            with psycopg.connect(leader.dsn(name)) as raw:
                                raw.execute("SELECT nextval('change_seq')")  # a gap, as that of a commit that failed
                            store.tables.create("m.c.s.beside")
                            in_hand.commit(in_hand.read()[-1].position)
                            leader.kill()
                            replica.promote()
                    assert wait_until(lambda: len(order(store)) >= 41, 60)
                finally:
                    over.set()
                    thread.join()
                assert [name for name in order(store) if name != "beside"] == [f"t{n}" for n in range(40)]
                assert in_hand.read(), "it goes on, although there is a gap before its position"
                assert store.verify() == []


def _count_on(store: Store, working: threading.Event, over: threading.Event) -> None:
    consumer = store.consumers.get("c")
    while not over.is_set():
        try:
            if consumer.run(_count, limit=2):
                working.set()
            else:
                time.sleep(0.01)
        except ms.MetastoreError:  # the server is away, or the answer was lost: it looks where it is
            consumer = _again(store)


def _again(store: Store) -> ms.Consumer:
    while True:
        try:
            return store.consumers.get("c")
        except ms.MetastoreError:
            time.sleep(0.05)


def _count(tx: Transaction, changes: list[ms.Change]) -> None:
    new = [c.path_after or "" for c in changes if c.kind == "table" and c.action == "create"]
    said = tx.tables.load("m.c.s.counter").properties.get("order", "")
    names = "".join(f"{path.rpartition('.')[2]} " for path in new if not path.endswith("counter"))
    if names:
        tx.tables.alter("m.c.s.counter", ms.SetProperty("order", said + names))
