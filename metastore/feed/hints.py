"""Send hints about new changes, so that followers of the feed do not wait for their next look.

One thread of a process sends them for all its open stores: after commits, at most 100 a second for each store, and only
while a process follows. A commit does no work for hints: the thread checks whether operations have ended. If one has,
or if a process followed, the thread asks every three seconds whether a process follows. A lost hint delays a follower
by at most one second.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final
from weakref import WeakSet

from metastore.clock import SYSTEM, Clock
from metastore.metrics import Metrics
from metastore.port.feed import Feed

__all__ = ["Hints"]

_NEXT: Final = 0.01
"""How often the thread looks while a process follows (seconds)."""
_ASKS: Final = 3.0
"""How often the thread asks whether a process follows (seconds)."""
_log = logging.getLogger("metastore")


class Hints:
    """The hints of one store, until the store is closed, or the program no longer references it."""

    def __init__(self, feed: Feed, metrics: Metrics, clock: Clock = SYSTEM) -> None:
        self._feed, self._metrics, self._clock = feed, metrics, clock
        self._ended, self._followed = metrics.ended_operations(), False
        self._asks_at = clock.monotonic() + _ASKS
        with _lock:
            _open.add(self)
        _begin()

    def close(self) -> None:
        """Send no more hints. If this was the last store, the thread ends soon."""
        with _lock:
            _open.discard(self)
        _wake.set()

    def look(self) -> float:
        """Send a hint if one is due; return the seconds until the next look."""
        now, ended = self._clock.monotonic(), self._metrics.ended_operations()
        due, news = now >= self._asks_at, ended != self._ended
        if (news and (due or self._followed)) or (due and self._followed):
            self._ended, self._asks_at = ended, now + _ASKS
            self._followed = self._sent(send=news)
        return _NEXT if self._followed else max(_NEXT, self._asks_at - now, _ASKS / 3)

    def _sent(self, *, send: bool) -> bool:
        try:
            return self._feed.hint(send=send)
        except Exception:  # noqa: BLE001  (the database is away, the store is closed: followers look by themselves)
            _log.debug("no hint was sent", exc_info=True)
            return False


_lock = threading.Lock()
_open: WeakSet[Hints] = WeakSet()
_thread: threading.Thread | None = None
_wake = threading.Event()


def _begin() -> None:
    global _thread  # noqa: PLW0603  (one thread of the process)
    with _lock:
        if _thread is None and _open:
            thread = threading.Thread(target=_send, name="metastore hints", daemon=True)
            thread.start()
            _thread = thread  # set last: if an interrupt ends start(), the next store starts another thread


def _send() -> None:
    global _thread  # noqa: PLW0603
    while True:
        with _lock:
            stores = list(_open)
            if not stores:
                _thread = None
                return
        pause = min(store.look() for store in stores)
        del stores  # so that the thread does not keep a store alive that nothing else references
        _wake.wait(pause)
        _wake.clear()


def _in_child() -> None:
    """Start again: a forked child has the stores, but not the thread."""
    global _lock, _thread, _wake
    _lock, _thread, _wake = threading.Lock(), None, threading.Event()
    _begin()


os.register_at_fork(after_in_child=_in_child)
