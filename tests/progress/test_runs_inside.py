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
    backend = store._session.backend
    queue = backend.queue

    def noted(ids: Sequence[int], patience: float) -> int:
        tickets.append(queue(ids, patience))
        return tickets[-1]

    monkeypatch.setattr(backend, "queue", noted)

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
