"""A transaction gets through beside those who announce changes of the row that it writes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import metastore as ms
from metastore.port.commit import Committed
from metastore.port.intents import FORMAT, Entry
from metastore.transaction.transaction import Transaction
from tests.concurrency.checks import seed, violations

PATH = "lake.cat.s.t"


def test_it_withdraws_what_is_pending(url: str) -> None:
    seed(url, PATH)
    over = threading.Event()
    errors: list[BaseException] = []

    def announce(number: int) -> None:
        try:
            with ms.open(url) as store:
                for n in range(100_000):
                    if over.is_set():
                        return
                    store.tables.alter(PATH, ms.SetProperty(f"p{number}", str(n)))
        except BaseException as error:  # noqa: BLE001  (it is looked at below)
            errors.append(error)

    threads = [threading.Thread(target=announce, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        with ms.open(url, deadline=20.0) as store:
            for n in range(3):
                comment = str(n)
                store.run(lambda tx, c=comment: tx.tables.alter(PATH, ms.SetComment(c)))  # type: ignore[misc]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert errors == []
    with ms.open(url) as store:
        assert store.tables.load(PATH).comment == "2"
        assert store.stats().pending == 0
    assert violations(url) == []


def _alter(tx: Transaction, path: str = PATH) -> None:
    tx.tables.alter(path, ms.SetComment("mine"))


def _below(tx: Transaction) -> None:
    _alter(tx)
    tx.schemas.rename("lake.cat.s", "s2")


def _below_after(tx: Transaction) -> None:
    tx.schemas.rename("lake.cat.s", "s2")
    _alter(tx, "lake.cat.s2.t")


def _itself(tx: Transaction) -> None:
    _alter(tx)
    tx.tables.rename(PATH, "t2")


def _dropped(tx: Transaction) -> None:
    _alter(tx)
    tx.tables.drop(PATH)


def _owner(tx: Transaction) -> None:
    _alter(tx)
    tx.owners.set("lake.cat.s", "lake.ann", kind="schema")


@pytest.mark.parametrize("function", [_below, _below_after, _itself, _dropped, _owner])
def test_it_does_not_wait_for_those_that_announced_something_on_what_it_moves(
    url: str, function: Callable[[Transaction], None]
) -> None:
    """They may be dead. Their changes are not lost: each is with its owner still, or was sent back to it."""
    seed(url, PATH)
    with ms.open(url) as store:
        store.users.create("lake.ann")
        table, intent = store.tables.load(PATH), ms.new_operation_id()
        changes = '[{"change": "SetComment", "text": "late"}]'
        entry = Entry(intent, "pending", "dead", table.id, "table", PATH, changes, FORMAT, 60.0)
        assert isinstance(store._session.backend.write_down(entry), Committed)
        store.run(function, deadline=20.0)
        assert store.outcome(intent).state in ("pending", "cancelled")
        assert [change.version for change in store.changes() if change.action == "alter"] == [2]
        assert store.verify() == []
