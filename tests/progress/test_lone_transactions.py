"""A transaction that changes one entity: one fast message where it is alone, and it gets through where it is not."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from metastore.port.commit import Commit, Outcome
from tests.contract.intents import committed, entry


def sent(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Give a list of the commits from now on: whether each withdraws what is announced."""
    backend = store._session.backend
    commit, seen = backend.commit, list[bool]()

    def noted(given: Commit) -> Outcome:
        seen.append(given.withdraw)
        return commit(given)

    monkeypatch.setattr(backend, "commit", noted)
    return seen


def count(tx: Any) -> None:
    lake = tx.metalakes.load("m")
    tx.metalakes.alter(lake, ms.SetProperty("n", str(int(lake.properties.get("n", "0")) + 1)))


def test_alone_it_withdraws_nothing(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.metalakes.create("m")
    seen = sent(store, monkeypatch)
    for _ in range(3):
        store.run(count)
    assert seen == [False] * 3
    assert store.metalakes.load("m").properties["n"] == "3"


def test_with_others_it_withdraws_at_its_second_message_and_then_at_its_first(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = store.metalakes.create("m")
    committed(store._session.backend.write_down(entry(lake)))
    seen = sent(store, monkeypatch)
    runs = []

    def counted(tx: Any) -> None:
        runs.append(1)
        count(tx)

    store.run(counted)
    store.run(counted)
    assert seen == [False, True, True]
    assert len(runs) == 2, "the function is not run again for an intent"
    assert store.verify() == []
