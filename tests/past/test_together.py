"""The past of changes that travelled with others, and of those that a batch carried along for another process."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import pytest

import metastore as ms
from metastore.errors import MetastoreError
from tests.combine.gate import announced, lanes, setting, together
from tests.past.test_truth import check_pins

pytestmark = pytest.mark.postgres


def started(store: ms.Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    for schema in ("s0", "s1"):
        for table in ("t0", "t1"):
            store.tables.create(f"m.c.{schema}.{table}", parents=True)


def check_all(store: ms.Store) -> None:
    """Compare the tree at each position but the first with a replay of the feed up to it."""
    check_pins(store, [change.position for change in store.changes()][1:])


def test_what_a_batch_carries_has_its_place_in_the_past(postgres_url: str) -> None:
    with ms.open(postgres_url) as store:
        started(store)
        store.tables.exists("m.c.s0.t0")
        good = announced(store, "m.c.s0.t0", setting("theirs", "1"))
        announced(store, "m.c.s0.t0", setting("theirs", "2", expected="0"))  # fails
        _, writes = lanes(store)
        change = ms.SetProperty("mine", "1")
        calls = [lambda name=name: store.tables.alter(f"m.c.s0.{name}", change) for name in ("t0", "t1", "t0")]
        together(writes, calls)
        store.tables.rename("m.c.s0.t0", "r")
        (carried,) = [c for c in store.changes() if c.operation_id == good]
        assert store.at(carried.position).tables.load("m.c.s0.t0").properties == {"theirs": "1"}
        check_all(store)
        assert store.verify() == []


def busy(store: ms.Store, number: int) -> None:
    """Alter the same few tables mostly; rename, drop and make them and their schemas now and then."""
    choose = random.Random(number)
    for n in range(14):
        schema, table = f"m.c.s{choose.randrange(2)}", f"t{choose.randrange(2)}"
        with suppress(MetastoreError):
            chance = choose.random()
            if chance < 0.8:
                store.tables.alter(f"{schema}.{table}", ms.SetProperty(f"k{number}", str(n)))
            elif chance < 0.86:
                store.tables.create(f"{schema}.{table}")
            elif chance < 0.92:
                store.tables.rename(f"{schema}.{table}", f"m.c.s{choose.randrange(2)}.t{choose.randrange(2)}")
            elif chance < 0.96:
                store.tables.drop(f"{schema}.{table}")
            else:
                store.schemas.rename(schema, f"s{choose.randrange(2)}")


def test_every_position_of_two_busy_processes_shows_a_replay_of_the_feed(postgres_url: str) -> None:
    """Each process sends batches, and carries what the other one has announced."""
    with ms.open(postgres_url, pool_size=20) as one, ms.open(postgres_url, pool_size=20) as other:
        started(one)
        threads = [threading.Thread(target=busy, args=((one, other)[n % 2], n)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_all(one)
        assert one.verify() == []
