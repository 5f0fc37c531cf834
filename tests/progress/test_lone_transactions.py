"""A transaction that changes one entity: one fast message where it is alone, and it gets through where it is not."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from metastore.port.commit import Commit, CommitOutcome
from tests.contract.intents import committed, entry


def sent(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list of the commits from now on: how many intents of others each carries."""
    backend = store._session.backend
    commit, seen = backend.commit, list[int]()

    def noted(given: Commit) -> CommitOutcome:
        seen.append(sum(len(one.resolutions) for one in given.carries))
        return commit(given)

    monkeypatch.setattr(backend, "commit", noted)
    return seen


def count(tx: Any) -> None:
    lake = tx.metalakes.load("m")
    tx.metalakes.alter(lake, ms.SetProperty("n", str(int(lake.properties.get("n", "0")) + 1)))


def test_alone_it_carries_nothing(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.metalakes.create("m")
    seen = sent(store, monkeypatch)
    for _ in range(3):
        store.run(count)
    assert seen == [0] * 3
    assert store.metalakes.load("m").properties["n"] == "3"


def test_with_others_it_carries_them_at_its_second_message(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = store.metalakes.create("m")
    announced = entry(lake, "from another process")
    committed(store._session.backend.write_down(announced))
    seen = sent(store, monkeypatch)
    runs = []

    def counted(tx: Any) -> None:
        runs.append(1)
        count(tx)

    store.run(counted)
    assert seen == [0, 1]
    assert len(runs) == 1, "the function is not run again for an intent"
    last, (carried,) = store.metalakes.load("m"), store._session.backend.steps(announced.operation_id)
    assert (last.comment, last.properties["n"], last.version) == ("from another process", "1", 3)
    assert (carried.action, carried.version) == ("alter", 3), "it comes after the transaction"
    assert store.verify() == []
