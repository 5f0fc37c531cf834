"""A store is closed while threads use it: each call ends soon, and its error says what became of it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

import metastore as ms
from tests.contract.intents import eventually

THREADS = 12
TABLES = "m.c.s.t{}"


class Clients:
    """Threads that use a store until it raises: one in three counts in a transaction, the others alter."""

    def __init__(self, store: ms.Store, *, hot: bool) -> None:
        self._store, self._hot = store, hot
        self.done, self.errors = Counter[int](), list[str]()
        self.threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def _work(self, number: int) -> None:
        path = TABLES.format(0 if self._hot else number)

        def count(tx: Any) -> None:
            table = tx.tables.load(path)
            tx.tables.alter(table, ms.SetProperty("n", str(int(table.properties["n"]) + 1)))

        try:
            while True:
                if number % 3 == 0:
                    self._store.run(count)
                else:
                    self._store.tables.alter(path, ms.SetProperty(f"k{number}", str(self.done[number] + 1)))
                self.done[number] += 1
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            self.errors.append(type(error).__name__)


def prepare(url: str) -> None:
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        for n in range(THREADS):
            store.tables.create(TABLES.format(n), properties={"n": "0"})


@pytest.mark.parametrize("hot", [True, False], ids=["hot", "cool"])
def test_calls_under_way_end_and_know_their_outcome(url: str, hot: bool) -> None:
    """Calls wait for connections, in lanes, for helpers, and in line. None hangs, and none is unknown."""
    prepare(url)
    store = ms.open(url)
    clients = Clients(store, hot=hot)
    eventually(lambda: sum(clients.done.values()) > 5 * THREADS, 60.0)
    store.close()
    for thread in clients.threads:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in clients.threads)
    assert set(clients.errors) == {"StoreClosed"}
    with ms.open(url) as again:
        found = {n: again.tables.load(TABLES.format(0 if hot else n)).properties for n in range(THREADS)}
        altered = {n: int(found[n].get(f"k{n}", "0")) for n in range(THREADS) if n % 3}
        assert altered == {n: clients.done[n] for n in altered}, "what raised StoreClosed was not applied"
        counted = [clients.done[n] for n in range(0, THREADS, 3)]
        assert int(found[0]["n"]) == (sum(counted) if hot else counted[0])
        assert again.verify() == []


@pytest.mark.parametrize("when", ["acquiring", "before the block", "in the block"])
def test_a_lease_is_free_although_its_store_was_closed_in_the_middle(
    url: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(url)
    store = ms.open(url)
    if when == "acquiring":
        take = store.leases._book.take

        def taken(want: Any) -> Any:
            answer = take(want)
            store.close()
            return answer

        monkeypatch.setattr(store.leases._book, "take", taken)
    with pytest.raises((ms.StoreClosed, ms.LeaseLost)):  # noqa: PT012  (one of these lines, as the case says)
        lease = store.leases.acquire("nightly", ttl=60.0)
        assert when != "acquiring"
        if when == "before the block":
            store.close()
        with lease:
            store.leases._ours.held.clear()  # as another thread does that finds this one in the middle of its release
            store.close()
            store.ping()
    with ms.open(url) as other:
        assert other.leases.holder("nightly") is None
