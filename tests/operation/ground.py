"""A small store on the memory model whose clock stands still, so that a test decides what happens when."""

from __future__ import annotations

from typing import Any, Final, cast
from uuid import UUID

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.clock import SYSTEM, Clock
from metastore.operation.request import Call, Merge, Request
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from metastore.urls import parse_url

__all__ = ["PATH", "StillClock", "merge_of", "request", "session_of", "store_on", "store_with"]

PATH: Final = "lake.c.s.t"


class StillClock(Clock):
    """A clock that goes only when somebody sleeps; all random times are the longest that are allowed."""

    def __init__(self) -> None:
        self.at = SYSTEM.micros()  # operation ids say it too
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.at / 1_000_000

    def micros(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += max(round(seconds * 1_000_000), seconds > 0)  # what waits for the last nanoseconds must get there

    def uniform(self, low: float, high: float) -> float:
        return high


def store_on(backend: Any, clock: Clock, policy: RetryPolicy | None = None) -> Store:
    """Return a store on a backend that a test has made."""
    return Store(parse_url("memory://"), cast(Backend, backend), policy or RetryPolicy(), "me", clock)


def store_with(clock: Clock) -> Store:
    """Return a store on a memory model of its own, with the topic ``PATH``."""
    store = store_on(MemoryBackend(clock), clock)
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="messaging", provider="kafka")
    store.schemas.create("lake.c.s")
    store.topics.create(PATH)
    return store


def session_of(store: Store) -> Session:
    """Return what all calls of the store share."""
    return store._session


def merge_of(store: Store, comment: str) -> Merge:
    """Return the change of the comment of ``PATH``, as it is announced."""
    topic = store.topics.load(PATH)
    return Merge("topic", topic.names, topic.id, (ms.SetComment(comment),))


def request(**fields: Any) -> Request[Any]:
    """Return a request; what a test does not name does nothing."""
    defaults: dict[str, Any] = {
        "verb": "alter",
        "what": lambda: "alter it",
        "attempt": lambda view: None,
        "replay": lambda steps: steps,
        "arguments": lambda: ["topic"],
    }
    return Request(**defaults | fields)


def call(operation_id: UUID | None = None) -> Call:
    """Return what one call brings along."""
    return Call(operation_id=operation_id)
