"""The metrics count each transaction once, with all its attempts, and how it ended."""

from __future__ import annotations

import pytest

import metastore as ms
from metastore.transaction.transaction import Transaction


def _decided(store: ms.Store) -> dict[str, int]:
    return store.metrics().operations.get("transaction", {})


def _lose(store: ms.Store) -> None:
    with store.transaction() as tx:
        tx.metalakes.load("m")
        store.metalakes.alter("m", ms.SetProperty("other", "caller"))
        tx.metalakes.alter("m", ms.SetComment("late"))


def test_how_a_transaction_ended(store: ms.Store) -> None:
    def fail(tx: Transaction) -> None:
        tx.metalakes.alter("m", ms.SetComment("never"))
        raise KeyError

    store.metalakes.create("m")
    store.run(lambda tx: tx.metalakes.load("m"))
    assert _decided(store) == {"value": 1}
    store.run(lambda tx: tx.metalakes.alter("m", ms.SetComment("mine")))
    with pytest.raises(KeyError):
        store.run(fail)
    with pytest.raises(ms.VersionConflict):
        _lose(store)
    assert _decided(store) == {"value": 1, "self": 1, "error": 2}
    assert store.metrics().in_flight == 0


def test_a_function_that_runs_again_counts_once_with_all_attempts(store: ms.Store) -> None:
    runs = list[int]()

    def work(tx: Transaction) -> None:
        assert store.metrics().in_flight == 1
        runs.append(tx.metalakes.load("m").version)
        if len(runs) <= 2:
            store.metalakes.alter("m", ms.SetProperty("runs", str(len(runs))))
        tx.metalakes.alter("m", ms.SetComment("mine"))

    store.metalakes.create("m")
    store.run(work)
    assert len(runs) == 3
    assert _decided(store) == {"self": 1}
    attempts = store.metrics().attempts["transaction"]
    assert (attempts.count, attempts.total) == (1, 3)


def test_a_transaction_whose_time_is_over_is_counted(store: ms.Store) -> None:
    def lose(tx: Transaction) -> None:
        tx.metalakes.load("m")
        store.metalakes.alter("m", ms.SetProperty("at", str(store.metrics().conflicts)))
        tx.metalakes.alter("m", ms.SetComment("never"))

    store.metalakes.create("m")
    with pytest.raises(ms.DeadlineExceeded):
        store.run(lose, deadline=0.2)
    assert _decided(store) == {"error": 1}
