"""How often a call waits for the server: Sync messages counted on the wire, BEGIN and COMMIT too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metastore as ms
from metastore.store import Store
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, new_lake
from tests.servers.proxy import PostgresProxy

__all__ = ["measure"]

WARM = 6
"""Calls that are not counted: psycopg prepares a statement at its third execution."""

SCHEMA = f"{CATALOG}.s"
CHANGE = ms.SetProperty("owner", "bench")


class _Counter:
    """Counts the round trips of each of a row of calls."""

    def __init__(self, setting: Setting, proxy: PostgresProxy) -> None:
        self.calls = WARM + setting.runs
        self._figures = setting.figures
        self._proxy = proxy

    def trips(self, call: Callable[[int], object]) -> list[int]:
        counts = []
        for n in range(self.calls):
            before = self._proxy.round_trips
            call(n)
            counts.append(self._proxy.round_trips - before)
        return counts

    def record(self, name: str, call: Callable[[int], object]) -> None:
        self._figures.record(f"round_trips_{name}", self.trips(call)[WARM:])


def measure(setting: Setting) -> None:
    """Count them for each kind of call, with the entity or parent in hand and by path."""
    url = new_lake(setting.nosync, "s")
    with PostgresProxy("127.0.0.1", setting.nosync.port) as proxy:
        counter = _Counter(setting, proxy)
        with ms.open(proxy.url_for(url), principal="bench") as store:
            setting.figures.record("round_trips_connect", [proxy.round_trips])
            _tables(store, counter)
            _schemas(store, counter)
            _several(store, counter)
        with ms.open(proxy.url_for(url)) as store:
            counts = counter.trips(lambda n: store.tables.load(f"{SCHEMA}.many0"))
            setting.figures.record("round_trips_prepare_once", [max(counts) - counts[-1]])


def _tables(store: Store, counter: _Counter) -> None:
    tables, numbers = store.tables, range(counter.calls)
    schema = store.schemas.load(SCHEMA)
    counter.record("create", lambda n: tables.create(f"hand{n}", parent=schema, columns=COLUMNS))
    counter.record("create_by_path", lambda n: tables.create(f"{SCHEMA}.path{n}", columns=COLUMNS))
    hand = [tables.load(f"{SCHEMA}.hand{n}") for n in numbers]
    counter.record("load", lambda n: tables.load(f"{SCHEMA}.hand{n}"))
    counter.record("alter", lambda n: tables.alter(hand[n], CHANGE))
    counter.record("alter_by_path", lambda n: tables.alter(f"{SCHEMA}.path{n}", CHANGE))
    hand = [tables.load(f"{SCHEMA}.hand{n}") for n in numbers]
    counter.record("rename", lambda n: tables.rename(hand[n], f"new{n}"))
    counter.record("rename_by_path", lambda n: tables.rename(f"{SCHEMA}.path{n}", f"other{n}"))
    hand = [tables.load(f"{SCHEMA}.new{n}") for n in numbers]
    counter.record("drop", lambda n: tables.drop(hand[n]))
    counter.record("drop_by_path", lambda n: tables.drop(f"{SCHEMA}.other{n}"))


def _schemas(store: Store, counter: _Counter) -> None:
    schemas, numbers = store.schemas, range(counter.calls)
    hand = [schemas.create(f"{CATALOG}.hand{n}") for n in numbers]
    for n in numbers:
        schemas.create(f"{CATALOG}.path{n}")
    counter.record("rename_schema", lambda n: schemas.rename(hand[n], f"new{n}"))
    counter.record("rename_schema_by_path", lambda n: schemas.rename(f"{CATALOG}.path{n}", f"other{n}"))
    hand = [schemas.load(f"{CATALOG}.new{n}") for n in numbers]
    counter.record("drop_schema", lambda n: schemas.drop(hand[n]))
    counter.record("drop_schema_by_path", lambda n: schemas.drop(f"{CATALOG}.other{n}"))


def _several(store: Store, counter: _Counter) -> None:
    paths = [f"{SCHEMA}.many{n}" for n in range(20)]
    for path in paths:
        store.tables.create(path, columns=COLUMNS)
    counter.record("load_many_20", lambda n: store.tables.load_many(paths))
    counter.record("transaction_5_tables", lambda n: _transaction(store, paths[:5], n))


def _transaction(store: Any, paths: list[str], n: int) -> None:
    with store.transaction() as tx:
        for table in tx.tables.load_many(paths):
            tx.tables.alter(table, ms.SetProperty("turn", str(n)))
