"""A transaction gets through beside those who announce changes of the row that it writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore.operation.marks import OwnMark
from metastore.port.commit import Committed
from metastore.port.intents import FORMAT, Entry, Mark
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


def test_a_function_that_meets_anothers_mark_gives_up_its_own(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that each mark what the other needs would wait for each other until the marks end."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    listed, needed = store.schemas.create("m.c.listed"), store.schemas.create("m.c.needed")
    backend, other = store._session.backend, ms.new_operation_id()
    runs, marked = list[int](), list[bool]()
    step_aside = OwnMark.step_aside

    def is_marked() -> bool:
        return any(one.mark is not None for one in backend.marked([listed.id]))

    def aside(mark: OwnMark, *given: Any, **named: Any) -> Any:
        conflict = step_aside(mark, *given, **named)
        marked.append(is_marked())
        backend.unmark(needed.id, other)
        return conflict

    def fn(tx: ms.Transaction) -> None:
        runs.append(len(list(tx.tables.names("m.c.listed"))))
        if len(runs) == 1:
            caller = threading.Thread(target=store.tables.create, args=["m.c.listed.new"])
            caller.start()
            caller.join()
        else:
            assert len(runs) > 2 or is_marked()
            monkeypatch.setattr(OwnMark, "step_aside", aside)
            if len(runs) == 2:
                backend.mark(Mark(other, needed.id, 30.0))
        tx.tables.create("m.c.needed.t")

    store.run(fn)
    assert not marked[0]
    assert runs == [0, 1]
