"""What goes on beside a holder's work: renewing his lease, and telling him in time that it is lost."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Protocol

from metastore.clock import Clock
from metastore.deadlines import until
from metastore.errors import LeaseLost, MetastoreError

__all__ = ["Heartbeat", "Lost"]

_log = logging.getLogger("metastore")


class Timed(Protocol):
    """What is held, as far as its time goes."""

    clock: Clock

    @property
    def names(self) -> tuple[str, ...]:
        """What is held."""
        ...

    def seconds_left(self) -> float:
        """Return how long it lasts by the holder's clocks; who finds that it is over notes the loss."""
        ...

    def renew(self) -> None:
        """Let it last for its ttl from now on."""
        ...


class Lost(threading.Event):
    """Whoever looks at it, or waits for it, finds by the clocks that the time is over: no other thread is needed."""

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
    """Threads of one lease, started when they are wanted; they end with it, and with the thread of its ``holder``."""

    def __init__(self, hold: Timed, every: float) -> None:
        """Renew ``every`` so many seconds."""
        self._hold = hold
        self.every = every
        self.holder = threading.current_thread()
        self.beating: threading.Thread | None = None
        self._watching: threading.Thread | None = None
        self._stop = threading.Event()
        self._guard = threading.Lock()

    def keep(self) -> None:
        """Renew from now on, in a thread of its own."""
        with self._guard:
            if self.beating is None:
                self.beating = self._started(self._beat, "")

    def watch(self) -> None:
        """Look from now on, in a thread of its own, when the time is over: also while a renewal hangs."""
        with self._guard:
            if self._watching is None:
                self._watching = self._started(self._watch, ", its time")

    def _started(self, target: Callable[[], None], what: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"lease {self._hold.names[0]}{what}", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._stop.set()
            raise
        return thread

    def stop(self, patience: float = 0.0) -> None:
        """Renew no more; wait a moment for a renewal in flight. One that comes late finds another token."""
        self._stop.set()
        for thread in (self.beating, self._watching) if patience else ():
            if thread is not None and thread is not threading.current_thread():
                thread.join(patience)

    def _left(self) -> float:
        return max(0.0, min(self._hold.seconds_left(), threading.TIMEOUT_MAX))

    def _watch(self) -> None:
        while not self._stop.wait(self._left()):
            pass  # to look is to tell

    def _beat(self) -> None:
        wait = self.every
        while not self._stop.wait(min(wait, self._left())):
            if not self.holder.is_alive():
                return  # nobody is left who could release it: its time ends
            try:
                with until(self._hold.clock.monotonic() + self._left()):
                    self._hold.renew()
                wait = self.every
            except LeaseLost:
                return
            except MetastoreError as error:
                _log.warning("the lease %r was not renewed, and is tried again: %s", self._hold.names[0], error)
                wait = self.every / 4
