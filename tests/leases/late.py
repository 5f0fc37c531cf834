"""A holder in a process of its own, which stands still at a chosen point until its time is long over.

::

    with Late(url) as late:
        late.begin("commit", "work", 20.0, alter)  # acquires "work", runs alter(store, lease), stops before its commit
        ...                                        # others take the lease over
        said = late.go_on()                        # SIGCONT: it sends what it was about to send

Nobody waits for that time: the database and the holder's clock are told that it has passed. So it may be so long that
a busy machine comes as far as the point within it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

import metastore as ms
from metastore.clock import Clock
from tests.concurrency.raw import rows

__all__ = ["Late", "Said", "taken_over"]

_SPAWN = multiprocessing.get_context("spawn")
_WITHIN = 30.0
Work = Callable[[ms.Store, ms.Lease], object]
"""What is done under the lease. Of a module's level."""


class Said(NamedTuple):
    """What a late holder came to."""

    error: str | None
    text: str
    lost: bool
    told: int
    """How often on_lost was called."""
    released: bool
    """What release said afterwards."""


@dataclass(frozen=True)
class _Sleeping(Clock):
    """The machine's clock, on a machine that may have slept meanwhile (seconds)."""

    slept: list[float] = field(default_factory=lambda: [0.0])

    def boottime(self) -> float:
        return super().boottime() + self.slept[0]


def _run(pipe: Connection, url: str) -> None:
    parent = os.getppid()
    with ms.open(url, principal="late") as store:
        store.leases._clock = _Sleeping()
        while os.getppid() == parent:
            try:
                point, nth, name, ttl, work = pipe.recv()
            except EOFError:
                return
            pipe.send(("said", _late(store, pipe, (point, nth), name, ttl, work)))


def _late(store: ms.Store, pipe: Connection, where: tuple[str, int], name: str, ttl: float, work: Work) -> Said:
    told: list[ms.Lease] = []
    lease = store.leases.acquire(name, ttl=ttl, on_lost=told.append)
    error: BaseException | None = None
    restore = _stop_at(store, where, pipe, ttl)
    try:
        work(store, lease)
    except ms.MetastoreError as raised:
        error = raised
    finally:
        restore()
    said = None if error is None else type(error).__name__
    return Said(said, str(error), lease.lost.is_set(), len(told), lease.release())


def _stop_at(store: ms.Store, where: tuple[str, int], pipe: Connection, ttl: float) -> Callable[[], None]:
    """Let the nth call of a method of the backend, or ("leases.…") of its leases, stop the process for its ttl."""
    clock = store.leases._clock
    assert isinstance(clock, _Sleeping)
    (name, nth), backend = where, store._session.backend
    owner: Any = type(backend.leases) if name.startswith("leases.") else type(backend)
    method = name.removeprefix("leases.")
    original = getattr(owner, method)
    calls = 0

    def stop(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            pipe.send(("parked", None))
            pipe.recv()
            clock.slept[0] += ttl
        return original(*arguments, **options)

    inherited = method not in vars(owner)
    setattr(owner, method, stop)
    return lambda: delattr(owner, method) if inherited else setattr(owner, method, original)


class Late:
    """The process. It does one work after another."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(theirs, url), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def begin(self, point: str, name: str, ttl: float, work: Work, *, nth: int = 1) -> None:
        """Let it acquire the lease and work, up to the point; stop it there (SIGSTOP) until its time is over."""
        self._pipe.send((point, nth, name, ttl, work))
        word, said = self._receive()
        assert word == "parked", f"it never came to {point}: {said}"
        self._signal(signal.SIGSTOP)
        earlier = f"expires_at - {round(ttl * 1_000_000)}"
        assert rows(self._url, f"UPDATE lease SET expires_at = {earlier} WHERE name = '{name}' RETURNING 1") == [(1,)]

    def go_on(self) -> Said:
        """Let it go on (SIGCONT); return what it came to."""
        self._signal(signal.SIGCONT)
        self._pipe.send("go on")
        word, said = self._receive()
        assert word == "said", word
        assert isinstance(said, Said)
        return said

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def _receive(self) -> Any:
        assert self._pipe.poll(_WITHIN), "the late process does not answer"
        return self._pipe.recv()


def taken_over(store: ms.Store, name: str, *, within: float = 10.0) -> ms.Lease:
    """Take a lease over as soon as its time is over."""
    ends = time.monotonic() + within
    while time.monotonic() < ends:
        with suppress(ms.LeaseHeld):
            return store.leases.acquire(name, owner="the next")
        time.sleep(0.005)
    raise AssertionError(f"{store.leases.holder(name)} has it still")
