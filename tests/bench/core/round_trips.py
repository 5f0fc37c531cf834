"""How often a call waits for the server: Sync messages counted on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metastore as ms
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, new_lake
from tests.servers.proxy import PostgresProxy

__all__ = ["measure"]

WARM = 6
"""Calls that are not counted: psycopg prepares a statement at its third execution."""


class _Counter:
    """Counts the round trips of calls on one connection."""

    def __init__(self, setting: Setting, proxy: PostgresProxy) -> None:
        self._setting = setting
        self._proxy = proxy

    def trips(self, call: Callable[[int], Any]) -> list[int]:
        counts = []
        for n in range(WARM + self._setting.runs):
            before = self._proxy.round_trips
            call(n)
            counts.append(self._proxy.round_trips - before)
        return counts

    def record(self, name: str, call: Callable[[int], Any]) -> None:
        self._setting.figures.record(name, self.trips(call)[WARM:])


def measure(setting: Setting) -> None:
    """Count them for each kind of call, with the entity or parent in hand and by path."""
    url = new_lake(setting.nosync, "s")
    with PostgresProxy("127.0.0.1", setting.nosync.port) as proxy:
        counter = _Counter(setting, proxy)
        with ms.open(proxy.url_for(url), principal="bench") as store:
            opened = proxy.round_trips
            setting.figures.record("round_trips_connect", [opened - 1])  # opening reads the schema's format
            _tables(store, counter)
            _schemas(store, counter)
            _several(store, counter, setting)
        with ms.open(proxy.url_for(url)) as store:
            counts = counter.trips(lambda n: store.tables.load(f"{CATALOG}.s.hand0"))
            setting.figures.record("round_trips_prepare_once", [max(counts) - counts[-1]])


def _tables(store: Any, counter: _Counter) -> None:
    total = 50
    schema = store.schemas.load(f"{CATALOG}.s")
    store.tables.create_many(schema, ({"name": f"hand{n}", "columns": COLUMNS} for n in range(total)))
    store.tables.create_many(schema, ({"name": f"path{n}", "columns": COLUMNS} for n in range(total)))
    store.tables.create_many(schema, ({"name": f"old{n}"} for n in range(total)))
    old = list(store.tables.load_many([f"{CATALOG}.s.old{n}" for n in range(total)]))
    hand = [store.tables.load(f"{CATALOG}.s.hand{n}") for n in range(total)]
    change = ms.SetProperty("owner", "bench")
    counter.record("round_trips_create", lambda n: store.tables.create(f"new{n}", parent=schema, columns=COLUMNS))
    counter.record("round_trips_alter", lambda n: store.tables.alter(hand[n], change))
    counter.record("round_trips_rename", lambda n: store.tables.rename(old[n], f"renamed{n}"))
    counter.record("round_trips_create_by_path", lambda n: store.tables.create(f"{CATALOG}.s.p{n}", columns=COLUMNS))
    counter.record("round_trips_alter_by_path", lambda n: store.tables.alter(f"{CATALOG}.s.path{n}", change))
    counter.record("round_trips_rename_by_path", lambda n: store.tables.rename(f"{CATALOG}.s.path{n}", f"named{n}"))
    counter.record("round_trips_load", lambda n: store.tables.load(f"{CATALOG}.s.hand{n}"))
    fresh = [store.tables.load(f"{CATALOG}.s.new{n}") for n in range(WARM + 3)]
    counter.record(
        "round_trips_drop",
        lambda n: store.tables.drop(fresh[n] if n < len(fresh) else hand_of(store, n)) and None,
    )
    counter.record("round_trips_drop_by_path", lambda n: store.tables.drop(f"{CATALOG}.s.p{n}"))
