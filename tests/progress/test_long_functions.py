"""A function of ``store.run`` that works for long does not starve beside another process's writers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

import metastore as ms
from metastore.transaction.transaction import Transaction

_WORK = 0.3
"""How long the function works (seconds): longer than the turns of those that only alter."""


def test_a_function_that_works_for_long_runs_a_few_times(postgres_url: str) -> None:
    runs, over = list[int](), threading.Event()
    with ms.open(postgres_url) as store, ms.open(postgres_url) as other:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.t", parents=True)

        def write(name: str) -> None:
            n = 0
            while not over.is_set():
                other.tables.alter("m.c.s.t", ms.SetProperty(name, str(n := n + 1)))

        def work(tx: Transaction) -> None:
            runs.append(1)
            table = tx.tables.load("m.c.s.t")
            time.sleep(_WORK)  # the work of a user's function
            tx.tables.alter(table, ms.SetComment(f"run {len(runs)}"))

        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(write, name) for name in "ab"]
            try:
                store.run(work, deadline=60.0)
            finally:
                over.set()
            for writer in writers:
                writer.result()
        assert len(runs) <= 8
        assert store.tables.load("m.c.s.t").comment == f"run {len(runs)}"


@pytest.mark.parametrize("raises", [False, True])
def test_its_place_in_line_lasts_as_long_as_its_work(monkeypatch: pytest.MonkeyPatch, raises: bool) -> None:
    runs, patience = list[int](), list[float]()
    with ms.open("memory://") as store:
        store.metalakes.create("m")
        backend = store._session.backend
        queue = backend.queue

        def noted(ids: Sequence[int], seconds: float) -> int:
            patience.append(seconds)
            return queue(ids, seconds)

        monkeypatch.setattr(backend, "queue", noted)

        def work(tx: Transaction) -> None:
            runs.append(tx.metalakes.load("m").version)
            if len(runs) == 1:
                store.metalakes.alter("m", ms.SetComment("another caller"))
                time.sleep(_WORK)
            tx.metalakes.alter("m", ms.SetComment("mine"))
            if raises:
                raise KeyError

        with pytest.raises(KeyError) if raises else nullcontext():
            store.run(work)
    assert runs == [1, 2]
    assert patience[0] >= 4 * _WORK


@pytest.mark.parametrize("around", [False, True])
def test_a_function_that_always_loses_lets_others_have_their_turns(postgres_url: str, around: bool) -> None:
    """Each run changes what it has read, by a call of its own. ``around``: on the ticket of a function around it."""
    runs, goes_on = list[int](), threading.Event()
    with ms.open(postgres_url) as store, ms.open(postgres_url) as other:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.t", parents=True)

        def lose(tx: Transaction) -> None:
            tx.tables.load("m.c.s.t")
            if not goes_on.is_set():
                runs.append(1)
                store.tables.alter("m.c.s.t", ms.SetProperty("runs", str(len(runs))))
            tx.tables.alter("m.c.s.t", ms.SetComment("at last"))

        def outer(tx: Transaction) -> None:
            tx.tables.load("m.c.s.t")  # takes the ticket, because the table is hot
            store.run(lose, deadline=10.0)
            goes_on.set()

        with ThreadPoolExecutor(1) as pool:
            if around:
                with pytest.raises(ms.DeadlineExceeded):
                    store.run(lose, deadline=0.2)
            losing = pool.submit(store.run, outer if around else lose, deadline=20.0)
            before = len(runs)
            try:
                while len(runs) < before + 8:
                    time.sleep(0.001)
                other.run(lambda tx: tx.tables.alter("m.c.s.t", ms.SetProperty("other", "had its turn")), deadline=5.0)
            finally:
                goes_on.set()
            losing.result()
        assert store.tables.load("m.c.s.t").comment == "at last"
