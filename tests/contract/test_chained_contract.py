"""What the contract promises of alters and of functions holds where they travel in chains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.combine.accompany import always_chained
from tests.contract.ground import Ground
from tests.contract.intents import mark, unmarked
from tests.contract.test_alter_contract import TestAlter as _TestAlter
from tests.contract.test_transactions_contract import TestRun as _TestRun

pytestmark = pytest.mark.postgres


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let functions and alters travel in chains; give how many did in each."""
    return always_chained(monkeypatch)


@pytest.fixture
def store(sizes: list[int], postgres_url: str) -> Iterator[Store]:
    """Open a store whose calls travel in chains."""
    with ms.open(postgres_url, principal="tester") as store:
        yield store


@pytest.mark.one_in(4)
class TestAlter(_TestAlter):
    """See the module."""


@pytest.mark.one_in(3)
class TestRun(_TestRun):
    """See the module."""


def test_they_do_travel_in_chains(ground: Ground, sizes: list[int]) -> None:
    store, before = ground.store, len(sizes)
    store.tables.alter("m.c.one.t", ms.SetComment("1"))
    store.run(lambda tx: tx.tables.alter("m.c.one.t", ms.SetComment("2")))
    store.run(lambda tx: tx.tables.load(ground.table))
    assert sizes[before:] == [1, 1, 1]
    assert store.tables.load("m.c.one.t").version == 3
    assert not store.verify()


def test_a_mark_of_a_dead_process_costs_few_runs(ground: Ground) -> None:
    """A chain that was surely not applied is counted as lost: after two of them the function goes alone."""
    runs = list[int]()

    def fn(tx: Any) -> None:
        runs.append(tx.tables.alter("m.c.one.t", ms.SetComment("x")).version)

    mark(ground, ground.table, 0.0)
    ground.store.run(fn)
    assert unmarked(ground, ground.table)
    assert len(runs) <= 4
