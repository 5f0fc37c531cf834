"""Transactions against each other and against single operations: no deadlock, no loop, no error that was never true."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest

import metastore as ms
from tests.concurrency.raw import dsn, waiting_for_locks
from tests.servers.process import wait_until


@pytest.fixture
def tables(store: ms.Store) -> list[ms.Table]:
    """Give ten tables of one schema."""
    store.metalakes.create("l")
    store.catalogs.create("l.c", type="relational")
    store.schemas.create("l.c.s")
    return [store.tables.create(f"l.c.s.t{n}") for n in range(10)]


def together(work: Callable[[int], None], count: int) -> None:
    """Run ``work(n)`` in ``count`` threads that begin at the same time; raise what one raised."""
    barrier = Barrier(count)

    def begin(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, range(count)))


def test_rows_that_are_read_and_written_are_locked_once(store: ms.Store, tables: list[ms.Table]) -> None:
    """Locked first as read and then as written, two transactions wait for each other."""
    manager = store.partitions

    def write(number: int) -> None:
        for n in range(8):
            row = manager.row("p", {"p": f"{number}-{n}"}, {})
            store.run(lambda tx, row=row: tx.partitions.put_many(tables[0], [row]))  # type: ignore[misc]

    together(write, 6)
    assert store.counters["conflicts_serialization"] == 0
    assert manager.load(tables[0], "p").version == 48


def test_opposite_orders_make_no_deadlock(store: ms.Store, tables: list[ms.Table]) -> None:
    """Each transaction renames all tables, every other one backwards."""

    def rename(number: int) -> None:
        ordered = tables if number % 2 else tables[::-1]

        def all_of_them(tx: Any) -> None:
            for table in ordered:
                tx.tables.rename(table, f"r{number}_{table.id}")

        for _ in range(4):
            store.run(all_of_them)

    together(rename, 4)
    assert store.counters["conflicts_serialization"] == 0


def test_what_was_absent_stays_absent(store: ms.Store, tables: list[ms.Table]) -> None:
    """Somebody creates the parent that the transaction saw missing: it ends, and does not go round in circles."""
    del tables
    with pytest.raises(ms.MetastoreError), store.transaction() as tx:  # noqa: PT012  (at its end)
        assert not tx.tables.exists("l.c.new.t")
        store.schemas.create("l.c.new")
        tx.tables.create("l.c.new.t", parents=True)
    assert not store.tables.exists("l.c.new.t")


def test_an_owned_row_is_read_at_one_version(store: ms.Store, tables: list[ms.Table]) -> None:
    """Two reads that differ cannot both be true at the commit."""
    store.partitions.create(tables[0], "p", values={"p": "1"})
    with pytest.raises(ms.VersionConflict), store.transaction() as tx:  # noqa: PT012  (at its end)
        tx.partitions.load(tables[0], "p")
        store.partitions.put_many(tables[0], [store.partitions.row("p", {"p": "2"}, {})])
        tx.partitions.load(tables[0], "p")
        tx.tables.alter(tables[1], ms.SetComment("x"))
    assert store.tables.load(tables[1]).comment is None


def test_who_writes_an_owned_row_that_was_read_is_waited_for(postgres_url: str) -> None:
    """Else two transactions commit, each of which has read what the other one writes."""
    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url)) as other, ThreadPoolExecutor(1) as pool:
        store.metalakes.create("l")
        store.catalogs.create("l.c", type="relational")
        read, written = [store.tables.create(f"l.c.s.t{n}", parents=True) for n in range(2)]
        store.partitions.create(read, "p", values={"p": "1"})

        def decide() -> None:
            with store.transaction() as tx:
                tx.partitions.load(read, "p")
                tx.tables.alter(written, ms.SetComment("x"))

        other.execute("UPDATE owned SET version = version + 1")
        deciding = pool.submit(decide)
        assert wait_until(lambda: deciding.done() or waiting_for_locks(postgres_url) == 1, 20.0)
        assert not deciding.done()
        other.commit()
        with pytest.raises(ms.VersionConflict):
            deciding.result(20.0)


def test_run_raises_only_what_was_true(store: ms.Store, tables: list[ms.Table]) -> None:
    """A table that is dropped between the listing and the load is not an error of the function's."""
    rounds = []

    def load_all(tx: Any) -> int:
        names = list(tx.tables.names("l.c.s"))
        rounds.append(len(names))
        if len(rounds) == 1:
            store.tables.drop(tables[-1])
        return len([tx.tables.load(f"l.c.s.{name}") for name in names])

    assert store.run(load_all) == 9
    assert rounds == [10, 9]


def test_many_are_loaded_at_one_instant(url: str, store: ms.Store, tables: list[ms.Table]) -> None:
    """One table changes its name to and fro; it never has both names, nor none."""
    both = ["l.c.s.t0", "l.c.s.x0"]
    seen: set[int] = set()

    def work(number: int) -> None:
        with ms.open(url) as mine:
            for n in range(150):
                if number == 0:
                    mine.tables.rename(tables[0], ("x0", "t0")[n % 2])
                else:
                    seen.add(sum(t is not None for t in mine.tables.load_many(both)))

    together(work, 3)
    assert seen == {1}


def test_a_restored_cluster_is_another_database(postgres_url: str) -> None:
    """The first database of every cluster has the same number: the cluster's own tells them apart."""
    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        position = [c.position for c in store.changes()][-1]
        rows = store._session.backend._rows("UPDATE info SET origin = '1' || origin RETURNING origin", {})  # type: ignore[attr-defined]
        assert "/" in rows[0][0]
    with ms.open(postgres_url) as store, pytest.raises(ms.InvalidArgument, match="restored"):
        store.changes(after=position)


def test_a_run_beside_a_swap_of_catalogs_runs_again(url: str) -> None:
    """It reads by the old path, and writes by it. What it has read stays, so that it must begin again."""
    runs = list[int]()
    with ms.open(url) as store, ms.open(url) as other:
        store.metalakes.create("lake")
        for name in "cd":
            store.catalogs.create(f"lake.{name}", type="relational")
            store.tables.create(f"lake.{name}.s.t", parents=True, comment=name)

        def work(tx: Any) -> None:
            runs.append(1)
            tx.tables.load("lake.c.s.t")
            if len(runs) == 1:
                for old, new in (("c", "x"), ("d", "c"), ("x", "d")):
                    other.catalogs.rename(f"lake.{old}", new)
            tx.tables.alter("lake.c.s.t", ms.SetProperty("run", str(len(runs))))

        store.run(work)
        assert len(runs) <= 3
        assert store.tables.load("lake.c.s.t").comment == "d"
        assert store.tables.load("lake.c.s.t").properties == {"run": str(len(runs))}
        assert store.tables.load("lake.d.s.t").properties == {}
