"""What a catalog declares secret, or does not, costs no round trip once it is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.secret import Secret
from metastore.secrets.keyring import VARIABLE, new_key
from tests.servers.proxy import PostgresProxy

SETTINGS = {"metastore.secret-properties": "password"}
Trips = Callable[[Callable[[], object]], int]


@pytest.fixture(params=[{}, SETTINGS], ids=["plain", "declared"])
def counted(
    request: pytest.FixtureRequest,
    postgres_address: tuple[str, int],
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[ms.Store, Trips]]:
    """Give a store below whose catalog something was written, and what counts the round trips of a call."""
    monkeypatch.setenv(VARIABLE, new_key())
    with PostgresProxy(*postgres_address) as proxy, ms.open(proxy.url_for(postgres_url)) as store:

        def trips(call: Callable[[], object]) -> int:
            before = proxy.round_trips
            call()
            return proxy.round_trips - before

        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational", properties=request.param)
        store.tables.create("m.c.s.t", parents=True, properties={"a": "b", "password": "plain"})
        yield store, trips


def test_properties_cost_no_round_trip(counted: tuple[ms.Store, Trips]) -> None:
    store, trips = counted
    numbers = iter(range(100))

    def change(key: str) -> ms.EntityChange:
        return ms.SetProperty(key, str(next(numbers)))

    held = list[Any]()

    def in_hand(made: ms.EntityChange) -> None:
        held[0] = store.tables.alter(held[0], made)

    def in_a_transaction(made: ms.EntityChange) -> None:
        with store.transaction() as tx:
            tx.tables.alter("m.c.s.t", made)

    assert trips(lambda: store.tables.load("m.c.s.t")) == 1
    given: tuple[dict[str, str], ...] = ({}, {"a": "b"}, {"password": "plain"})
    for properties in given:
        assert trips(partial(store.tables.create, f"m.c.s.n{next(numbers)}", properties=properties)) == 1
    held.append(store.tables.load("m.c.s.t"))
    for n in range(4):  # psycopg prepares a statement that comes again, in a round trip of its own
        in_hand(ms.SetComment(f"{n}"))
        in_a_transaction(ms.SetComment(f"{n} too"))
        held[0] = store.tables.load("m.c.s.t")
    transaction = trips(lambda: in_a_transaction(ms.SetComment("c")))
    held[0] = store.tables.load("m.c.s.t")
    changes: tuple[ms.EntityChange, ...] = (ms.SetComment("e"), change("a"), change("password"), change("b"))
    for one in changes:
        assert trips(partial(in_hand, one)) == 1
    for one in reversed(changes):
        assert trips(partial(store.tables.alter, "m.c.s.t", one, change("n"))) == 2
        assert trips(lambda: in_a_transaction(change("c"))) == transaction
    assert store.verify() == []


def test_a_process_that_only_runs_transactions_reads_the_settings_once(counted: tuple[ms.Store, Trips]) -> None:
    """What a committed transaction validated is remembered; what it wrote, or a refused one has read, is not."""
    store, trips = counted
    seals, numbers = store._session.seals, iter(range(100))
    assert seals is not None

    def run(*changes: ms.EntityChange) -> ms.Table:
        return store.run(lambda tx: tx.tables.alter("m.c.s.t", *changes))

    def sets() -> ms.Table:
        return run(ms.SetProperty("password", str(next(numbers))))

    for _ in range(6):
        run(ms.SetComment(str(next(numbers))))
        seals.clear()
        sets()
    assert trips(lambda: run(ms.SetComment("as fast as can be"))) == trips(sets) == 2
    seals.clear()
    refused = store.transaction()
    refused.__enter__().tables.alter("m.c.s.t", ms.SetProperty("a", "lost"))
    sets()
    seals.clear()
    with pytest.raises(ms.VersionConflict):
        refused.__exit__(None, None, None)
    declared = "metastore.secret-properties" in store.catalogs.load("m.c").properties
    assert trips(sets) == 3 + 2 * declared, "the settings, whether their data key is still there, and the key"
    seals.clear()
    with store.transaction() as tx:
        tx.tables.alter("m.c.s.t", ms.SetProperty("password", "by the old settings"))
        tx.catalogs.alter("m.c", ms.SetProperty("metastore.secret-properties", "other password"))
    assert not seals._ids.get(("m", "c"))
    sets()
    assert trips(sets) == 2
    assert isinstance(store.tables.load("m.c.s.t").properties["password"], Secret)
    assert store.verify() == []
