"""A run inside of a function that has its turn does not wait in line behind that function."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

import metastore as ms


@pytest.mark.parametrize("raises", [False, True])
def test_it_goes_on_the_ticket_of_the_function_around_it(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    store.metalakes.create("m")
    outer, inner, tickets = list[int](), list[int](), list[int]()
    _note_tickets(store, monkeypatch, tickets)

    def look(tx: Any) -> None:
        inner.append(tx.metalakes.load("m").version)
        if raises:
            raise KeyError

    def count(tx: Any) -> None:
        outer.append(tx.metalakes.load("m").version)
        if len(outer) == 1:  # so that it waits in line
            store.metalakes.alter("m", ms.SetComment("another caller"))
        with pytest.raises(KeyError) if raises else nullcontext():
            store.run(look)
        tx.metalakes.alter("m", ms.SetProperty("n", str(len(outer))))

    store.run(count)
    assert (outer, inner) == ([1, 2], [2, 2])
    assert len(tickets) == 1
    assert store.metalakes.load("m").version == 3


def test_it_does_not_go_on_a_ticket_of_another_database(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity there may have the same id."""
    with ms.open("memory://") as other:
        assert store.metalakes.create("m").id == other.metalakes.create("m").id
        tickets: dict[str, list[int]] = {"outer": [], "inner": []}
        _note_tickets(store, monkeypatch, tickets["outer"])
        _note_tickets(other, monkeypatch, tickets["inner"])
        runs = list[int]()

        def loses_once(tx: Any) -> None:
            runs.append(tx.metalakes.load("m").version)
            if len(runs) == 1:
                other.metalakes.alter("m", ms.SetComment("another caller"))
            tx.metalakes.alter("m", ms.SetProperty("n", "1"))

        def count(tx: Any) -> None:
            if tx.metalakes.load("m").version == 1:  # so that it waits in line
                store.metalakes.alter("m", ms.SetComment("another caller"))
            else:
                other.run(loses_once)
            tx.metalakes.alter("m", ms.SetProperty("n", "1"))

        store.run(count)
    assert (len(tickets["outer"]), len(tickets["inner"]), runs) == (1, 1, [1, 2])


def _note_tickets(store: ms.Store, monkeypatch: pytest.MonkeyPatch, tickets: list[int]) -> None:
    backend = store._session.backend
    queue = backend.queue

    def noted(ids: Sequence[int], patience: float) -> int:
        tickets.append(queue(ids, patience))
        return tickets[-1]

    monkeypatch.setattr(backend, "queue", noted)
