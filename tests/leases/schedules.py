"""Holders with clocks of their own, a store whose clock is given, and the plainest model of what a lease is.

The model knows one lease: a token, who holds it until when, and what each holder believes. What the store answers is
compared with it, call by call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import metastore as ms
from metastore.clock import Clock
from metastore.leases.in_store import StoreLeases
from metastore.leases.lease import Lease
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from metastore.urls import parse_url

__all__ = ["TTL", "GivenClock", "Model", "World", "answer"]

START = 1_767_225_600_000_000
TTL = 10.0
NAME = "compaction"


class GivenClock(Clock):
    """A clock that stands still until it is told otherwise: three of them, that may differ."""

    def __init__(self) -> None:
        self.seconds = self.boot = self.wall = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.boot

    def micros(self) -> int:
        return START + round(self.wall * 1_000_000)

    def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0.001))

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.boot += seconds
        self.wall += seconds


def answer(call: Callable[[], Any]) -> str:
    """Return what a call came to, in one word."""
    try:
        value = call()
    except ms.MetastoreError as error:
        return type(error).__name__
    return f"token {value.token}" if isinstance(value, Lease) else "done" if value is None else str(value)


class World:
    """A store, and holders that share it, each with a clock and an incarnation of its own."""

    def __init__(self, backend: Backend, database: GivenClock, holders: int) -> None:
        self.database = database
        self.store = Store(parse_url("memory://"), backend, RetryPolicy(), "setup", database)
        self.store.metalakes.create("lake")
        self.clocks = [GivenClock() for _ in range(holders)]
        sessions = [Session(backend, clock, RetryPolicy(), f"holder {n}") for n, clock in enumerate(self.clocks)]
        self.leases = [StoreLeases(session) for session in sessions]
        self.stores = [
            Store(parse_url("memory://"), backend, RetryPolicy(), f"holder {n}", clock)
            for n, clock in enumerate(self.clocks)
        ]
        self.held: list[Lease | None] = [None] * holders
        self.ever: list[Lease] = []

    def advance(self, seconds: float) -> None:
        """Let time pass, everywhere."""
        for clock in (self.database, *self.clocks):
            clock.advance(seconds)

    # --- what a holder does; each returns one word

    def acquire(self, n: int) -> str:
        def call() -> Lease:
            lease = self.leases[n].acquire(NAME, ttl=TTL, owner=f"holder {n}")
            self.held[n] = lease
            return lease

        return answer(call)

    def renew(self, n: int) -> str:
        lease = self.held[n]
        return "nothing" if lease is None else answer(lease.renew)

    def release(self, n: int) -> str:
        lease = self.held[n]
        return "nothing" if lease is None else answer(lease.release)

    def commit(self, n: int, note: str) -> str:
        lease = self.held[n]
        if lease is None:
            return "nothing"
        return answer(lambda: self.stores[n].metalakes.alter("lake", ms.SetComment(note), lease=lease).comment)

    def stage(self, n: int, value: str) -> str:
        lease = self.held[n]
        lake = self.store.metalakes.load("lake")
        return "nothing" if lease is None else answer(lambda: lease.stage(lake, "pointer", value))

    def publish(self, n: int) -> str:
        lease = self.held[n]
        return "nothing" if lease is None else answer(lambda: len(lease.publish()))

    def break_(self) -> str:
        return answer(lambda: self.store.leases.break_(NAME))


@dataclass
class _Belief:
    """What one holder has in hand."""

    token: int
    since: tuple[float, float, float]
    released: bool = False
    lost: bool = False


@dataclass
class Model:
    """What each of those calls must come to."""

    world: World
    token: int = 0
    holder: int | None = None
    until: float = 0.0
    beliefs: dict[int, _Belief] = field(default_factory=dict)
    comment: str | None = None
    pointer: str | None = None
    staged: dict[tuple[int, str], bool] = field(default_factory=dict)

    def _now(self, n: int) -> tuple[float, float, float]:
        clock = self.world.clocks[n]
        return clock.seconds, clock.boot, clock.wall

    def _believes(self, n: int) -> bool:
        """Whether the holder has reason to believe that it holds, by its own clocks."""
        belief = self.beliefs.get(n)
        if belief is None or belief.released or belief.lost:
            return False
        if max(now - since for now, since in zip(self._now(n), belief.since, strict=True)) >= TTL:
            belief.lost = True
            return False
        return True

    def _holds(self, n: int) -> bool:
        return self.token == self.beliefs[n].token and self.holder == n

    def acquire(self, n: int) -> str:
        if self._believes(n):
            if self._holds(n):  # it is renewed then
                self.until, self.beliefs[n].since = self.world.database.wall + TTL, self._now(n)
                return f"token {self.token}"
            self.beliefs[n].lost = True
        if self.holder is not None and self.until > self.world.database.wall:
            return "LeaseHeld"
        self.token, self.holder, self.until = self.token + 1, n, self.world.database.wall + TTL
        self.beliefs[n] = _Belief(self.token, self._now(n))
        return f"token {self.token}"

    def _allowed(self, n: int) -> str | None:
        if n not in self.beliefs:
            return "nothing"
        if not self._believes(n):
            return "LeaseLost"
        if not self._holds(n):
            self.beliefs[n].lost = True
            return "LeaseLost"
        return None

    def renew(self, n: int) -> str:
        refused = self._allowed(n)
        if refused is None:
            self.until = self.world.database.wall + TTL
            self.beliefs[n].since = self._now(n)
        return refused or "done"

    def release(self, n: int) -> str:
        if n not in self.beliefs:
            return "nothing"
        belief = self.beliefs[n]
        given_back = not belief.released and self._holds(n)
        belief.released = True
        if given_back:
            self.token, self.holder = self.token + 1, None
        return str(given_back)

    def commit(self, n: int, note: str) -> str:
        refused = self._allowed(n)
        if refused is None:
            self.comment = note
        return refused or note

    def stage(self, n: int, value: str) -> str:
        refused = self._allowed(n)
        if refused is None:
            self.staged[self.token, value] = False
        return refused or "done"

    def publish(self, n: int) -> str:
        refused = self._allowed(n)
        if refused is not None:
            return refused
        ready = [key for key, published in self.staged.items() if key[0] == self.token and not published]
        if not ready:
            return "0"
        self.pointer = ready[-1][1]
        self.staged[ready[-1]] = True
        return "1"

    def break_(self) -> str:
        if self.holder is None:
            return "False"
        self.token, self.holder = self.token + 1, None
        return "True"
