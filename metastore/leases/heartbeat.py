"""Renew a lease while its holder works, and notice early if it is lost."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from metastore.clock import Alive, Clock
from metastore.deadlines import until
from metastore.errors import LeaseLost, MetastoreError

__all__ = ["Heartbeat", "Lost"]

_log = logging.getLogger("metastore")


class Timed(Protocol):
    """The part of a hold that its heartbeat uses."""

    clock: Clock

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the leases."""

    def seconds_left(self) -> float:
        """Return the seconds that are left by the holder's clocks; if the time is over, note the loss."""

    def renew(self) -> None:
        """Renew the leases for their ttl from now. Raises LeaseLost, and the errors of the book."""


class Lost(threading.Event):
    """An event that is also set when the time is over. ``is_set`` and ``wait`` check the clocks, without a thread."""

    def __init__(self, hold: Timed) -> None:
        super().__init__()
        self._hold = hold

    def is_set(self) -> bool:
        return super().is_set() or self._hold.seconds_left() <= 0

    def wait(self, timeout: float | None = None) -> bool:
        now = self._hold.clock.monotonic
        ends = math.inf if timeout is None else now() + timeout
        while not self.is_set() and (left := ends - now()) > 0:
            seconds = min(left, self._hold.seconds_left())
            super().wait(None if seconds == math.inf else max(0.0, seconds))
        return self.is_set()


class Heartbeat:
    """The threads of one lease, started on demand. They end with the lease, or with its last keeper."""

    def __init__(self, hold: Timed, every: float) -> None:
        """Prepare to renew ``hold``; ``every``: the seconds between two renewals."""
        self._hold = hold
        self._every = every
        self.beating: threading.Thread | None = None
        self._watching: threading.Thread | None = None
        self._ended: dict[threading.Thread, Future[None]] = {}
        self._stop, self._wake = threading.Event(), threading.Event()
        self._guard = threading.Lock()  # guards ``_keepers`` and ``_beats``
        self._keepers: list[Alive] = []
        self._beats = False
        self._now = False
        """Whether the next renewal is due now."""

    def keep(self) -> Alive:
        """Renew the lease until the caller's thread (or task) ends or calls :meth:`leave` with the result."""
        keeper = self._hold.clock.runner()
        with self._guard:
            if not self._beats:
                self.beating = self._started(self._beat, "")
                self._beats = True
            self._keepers.append(keeper)
        return keeper

    def leave(self, keeper: Alive) -> None:
        """Undo one :meth:`keep`, if there was one. Other keepers stay."""
        with self._guard, suppress(ValueError):
            self._keepers.remove(keeper)

    def sooner(self, every: float) -> None:
        """Renew at least every ``every`` seconds from now on."""
        self._every = min(self._every, every)
        self._wake.set()

    def now(self) -> None:
        """Renew now, if a keeper renews the lease at all."""
        self._now = True  # set first: the thread reads it as soon as it wakes
        self._wake.set()

    def _is_kept(self) -> bool:
        """Return whether a keeper is left to release the lease. If not, the next keeper restarts the renewals."""
        with self._guard:
            self._beats = any(keeper.is_alive() for keeper in self._keepers)
            return self._beats

    def watch(self) -> None:
        """Start a thread that notices when the time is over, even while a renewal hangs."""
        with self._guard:
            if self._watching is None:
                self._watching = self._started(self._watch, ", its time")

    def _started(self, target: Callable[[], None], what: str) -> threading.Thread:
        ended = Future[None]()

        def work() -> None:
            try:
                target()
            finally:
                ended.set_result(None)

        thread = threading.Thread(target=work, name=f"lease {self._hold.names[0]}{what}", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._stop.set()
            raise
        self._ended[thread] = ended
        return thread

    def stop(self, patience: float = 0.0) -> None:
        """Stop the renewals; wait ``patience`` seconds for a renewal in flight. A later renewal finds another token."""
        self._stop.set()
        self._wake.set()
        for thread, ended in list(self._ended.items()) if patience else ():
            if thread is not threading.current_thread():
                with suppress(TimeoutError):
                    self._hold.clock.wait(ended, patience)

    def _left(self) -> float:
        return max(0.0, min(self._hold.seconds_left(), threading.TIMEOUT_MAX))

    def _watch(self) -> None:
        while not self._stop.wait(self._left()):
            pass  # seconds_left() notes the loss

    def _beat(self) -> None:
        wait = self._every
        while True:
            if self._wake.wait(min(wait, self._left())):
                self._wake.clear()  # cleared before the next check, so that no stop is missed
                if self._stop.is_set():
                    return
                wait = 0.0 if self._now else self._every
                continue
            self._now = False
            if not self._is_kept():
                return  # nobody is left to release the lease, so let it expire
            try:
                with until(self._hold.clock.monotonic() + self._left()):
                    self._hold.renew()
                wait = self._every
            except LeaseLost:
                return
            except MetastoreError as error:
                _log.warning("the lease %r was not renewed; the next attempt follows: %s", self._hold.names[0], error)
                wait = self._every / 4
