"""A chain: callers of one process on one entity commit together, and each is told what became of its own call."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import metastore as ms
from metastore import Store
from tests.combine.conftest import SCHEMA

T0 = f"{SCHEMA}.t0"


def count(store: Store, path: str = T0) -> int:
    """Count one up in a transaction; return the number."""

    def fn(tx: Any) -> int:
        table = tx.tables.load(path)
        value = int(table.properties.get("counter", "0")) + 1
        tx.tables.alter(table, ms.SetProperty("counter", str(value)))
        return value

    return store.run(fn)


def test_callers_of_one_process_lose_no_update(store: Store) -> None:
    """Each count is told once, and each version is one answer's."""
    counted: list[int] = []
    versions: list[int] = []
    errors: list[BaseException] = []

    def client(number: int) -> None:
        try:
            for n in range(12):
                if n % 3:
                    versions.append(store.tables.alter(T0, ms.SetProperty(f"k{number}", str(n))).version)
                else:
                    counted.append(count(store))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    before = store.tables.load(T0).version
    threads = [threading.Thread(target=client, args=(n,)) for n in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert sorted(counted) == list(range(1, 49))
    assert max(Counter(versions).values()) == 1
    table = store.tables.load(T0)
    assert table.properties["counter"] == "48"
    assert table.version == before + 12 * 12
