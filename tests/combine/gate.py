"""Hold a lane until as many requests wait as a test wants: the batch is made by the test, not by chance."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore import Store
from metastore.combine.combiner import Combiner
from metastore.combine.handle import Term
from metastore.combine.lane import Lane
from metastore.port.commit import Committed
from metastore.port.intents import Entry

__all__ = [
    "always_together",
    "announced",
    "batches_of",
    "full_operations",
    "lanes",
    "setting",
    "together",
    "until_waiting",
    "waiting",
]

LONGEST = 60.0
"""How long a test waits for its requests (seconds)."""


def lanes(store: Store) -> tuple[Lane[Any, Any], Lane[Any, Any]]:
    """Return a store's lanes: for reads, and for writes."""
    combiner = store._session.combiner
    assert isinstance(combiner, Combiner)
    return combiner.finds._lane, combiner.writes._lane


def waiting(lane: Lane[Any, Any]) -> int:
    """Return how many requests wait in a lane."""
    return sum(handle.waits for handle in list(lane._queue))


@contextmanager
def held(lane: Lane[Any, Any]) -> Iterator[None]:
    """Lead the lane, as a thread whose message is under way, and let nobody take over."""
    deadline = time.monotonic() + LONGEST
    while not lane._token.acquire(False):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    patience, lane._patience = lane._patience, math.inf
    term = lane._term = Term()
    try:
        yield
    finally:
        lane.leave(term)
        lane._patience = patience


def until_waiting(lane: Lane[Any, Any], count: int, futures: Sequence[Future[Any]]) -> None:
    """Wait until so many requests wait in the lane."""
    deadline = time.monotonic() + LONGEST
    while waiting(lane) < count:
        assert time.monotonic() < deadline, f"only {waiting(lane)} of {count} wait"
        assert not any(future.done() for future in futures), [f.exception() for f in futures if f.done()]
        time.sleep(0.001)


def together(lane: Lane[Any, Any], calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Let all calls travel in one batch, in this order; return what each returned, or its error."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures: list[Future[Any]] = []
        with held(lane):
            for number, call in enumerate(calls, 1):
                futures.append(pool.submit(call))
                until_waiting(lane, number, futures)
        return [future.exception() or future.result() for future in futures]


@contextmanager
def batches_of(lane: Lane[Any, Any]) -> Iterator[list[int]]:
    """Give the list of the sizes of the batches that a lane sends."""
    sizes: list[int] = []
    original = lane._lead

    def lead(handle: Any, term: Any, send: Callable[[Any], Any]) -> None:
        def counted(handles: Sequence[Any]) -> Any:
            sizes.append(len(handles))
            return send(handles)

        original(handle, term, counted)

    lane._lead = lead  # type: ignore[assignment, method-assign]
    try:
        yield sizes
    finally:
        del lane._lead


def always_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let no request go alone at once: each leads a batch, of itself at least. Return the list of their sizes."""
    sizes: list[int] = []

    def run(self: Any, request: Any, ends: Any, alone: Any, send: Any, expired: Any = TimeoutError) -> Any:
        def counted(handles: Sequence[Any]) -> Any:
            sizes.append(len(handles))
            return send(handles)

        return self.result(self.submit(request, ends), alone, counted, expired)

    monkeypatch.setattr(Lane, "run", run)
    monkeypatch.setattr(Lane, "lead", lambda _: None)
    return sizes


def announced(store: Store, path: str, change: str, *, seconds: float = 60.0) -> UUID:
    """Write an intent on a table down, as another process does; return its operation id."""
    table, own = store.tables.load(path), ms.new_operation_id()
    entry = Entry(own, "pending", "other", table.id, "table", path, change, format=1, seconds=seconds)
    assert isinstance(store._session.backend.write_down(entry), Committed)
    return own


def setting(key: str, value: str, **more: Any) -> str:
    """Return the change of a property, as an intent has it."""
    return json.dumps([{"change": "SetProperty", "key": key, "value": value, **more}])


@contextmanager
def full_operations(store: Store) -> Iterator[None]:
    """Let every request go past the lanes: for tests that stand between an operation and its backend."""
    session = store._session
    combiner, session.combiner = session.combiner, None
    try:
        yield
    finally:
        session.combiner = combiner
