"""A user's change that is announced: others apply it while its evidence holds, and its user decides again otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.operation import helping, tickets
from metastore.port.note import read_note
from tests.contract.authorized import Lake, prepare
from tests.progress.hooks import CAS, Lost, before

PATH = "lake.sales.eu.orders"
MODIFY = ("modify_table", "table", PATH)


@pytest.fixture
def lake(url: str) -> Iterator[Lake]:
    """Give the lake, where ann may alter one table by one role, and a store of another process."""
    with ms.open(url, principal="root") as store:
        made = prepare(store)
        made.reader()
        made.role("writer", MODIFY)
        yield made


def _other(store: Store, numbers: Iterator[int]) -> None:
    store.tables.alter(PATH, ms.SetProperty("other", str(next(numbers))))


def test_a_user_ends_against_an_adversary(url: str, lake: Lake) -> None:
    """Invariant 7 holds for users as well."""
    lost, numbers = Lost(), itertools.count()
    with ms.open(url, hooks=[lost]) as store:
        ann = store.as_user("ann@corp")
        for n in range(5):
            lost.causes.clear()
            store._session.hot.cool(lake.orders.id)
            with before(ann, lambda: _other(lake.store, numbers), calls=CAS) as steps:
                found = ann.tables.alter(PATH, ms.SetProperty("ann", str(n)))
            assert found.properties["ann"] == str(n)
            assert len(lost.causes) <= 3, (lost.causes, steps)
        mine = [v for v in lake.store.tables.history(PATH) if v.principal == "ann@corp"]
        assert [c.to_json() for v in mine for c in v.changes] == [{"key": "ann", "value": str(n)} for n in range(5)]
    assert lake.store.verify() == []


def _announced_then(url: str, lake: Lake, act: Any) -> tuple[Store, Any]:
    """Let ann lose once, so that it announces its change; call ``act`` before it helps; return what came of it."""
    numbers = itertools.count()
    with ms.open(url) as store:
        ann = store.as_user("ann@corp")
        ann.tables.alter(PATH, ms.SetProperty("early", "yes"))

        def pending_then() -> None:
            with before(ann, act, calls=("pending",), times=1):
                result.append(ann.tables.alter(PATH, ms.SetComment("ann's")))

        result = list[Any]()
        with before(ann, lambda: _other(lake.store, numbers), calls=("commit",), times=1):
            try:
                pending_then()
            except ms.MetastoreError as error:
                result.append(error)
        return store, result[0]


def test_another_process_applies_it_with_its_evidence(url: str, lake: Lake) -> None:
    numbers = itertools.count(10)
    _, found = _announced_then(url, lake, lambda: _other(lake.store, numbers))
    assert found.comment == "ann's"
    (version,) = [v for v in lake.store.tables.history(PATH) if v.version == found.version]
    assert version.principal == "ann@corp"
    (step,) = lake.store._session.backend.steps(version.operation_id)
    role = lake.store.roles.load("lake.writer")
    assert read_note(step.fences or "").evidence[role.id] == role.scope_version
    assert lake.store.tables.load(PATH).properties["other"] == "10"  # it was the other one's commit that helped
    assert lake.store.verify() == []


def test_a_lost_right_sends_it_back_to_its_user(url: str, lake: Lake) -> None:
    def revoke() -> None:
        lake.store.roles.revoke("lake.writer", "modify_table", lake.orders)
        _other(lake.store, itertools.count(10))  # it helps, and finds that the evidence does not hold

    _, error = _announced_then(url, lake, revoke)
    assert isinstance(error, ms.PermissionDenied)
    assert lake.store.tables.load(PATH).comment is None
    assert lake.store.verify() == []


@pytest.mark.parametrize("others", [False, True])
def test_with_another_right_the_user_decides_again(url: str, lake: Lake, others: bool) -> None:
    def change() -> None:
        lake.store.roles.drop("lake.writer")
        lake.role("second", MODIFY)
        if others:
            _other(lake.store, itertools.count(10))

    _, found = _announced_then(url, lake, change)
    assert found.comment == "ann's"
    assert lake.store.tables.load(PATH).comment == "ann's"
    assert lake.store.verify() == []


def test_evidence_that_a_helper_ignores_is_found(url: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""

    def revoke() -> None:
        lake.store.roles.revoke("lake.writer", "modify_table", lake.orders)
        with monkeypatch.context() as patch:
            for module in (helping, tickets):
                patch.setattr(module, "evidence_of", lambda _: {})
            _other(lake.store, itertools.count(10))

    _announced_then(url, lake, revoke)
    assert lake.store.tables.load(PATH).comment == "ann's"
    assert [found.invariant for found in lake.store.verify()] == [14]
