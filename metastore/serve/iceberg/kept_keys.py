"""Keep short-lived keys for half of their life, and bound the calls to the service that makes them.

So a client gets a key that still has half of its life. Threads that ask for the same key at once share one call. If no
request waits for a call any more, the call is not begun, because it would delay others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from typing import Final

from cachetools import LRUCache

from metastore.clock import SYSTEM
from metastore.serve.iceberg.credentials import CannotVend

__all__ = ["KeptKeys", "KeyOf", "Made"]

KeyOf = tuple[str, str, tuple[str, ...]]
"""The identity of a key: a location, a principal, and its rights, sorted."""

_PATIENCE: Final = 10.0
"""How long a request waits for the token service (seconds)."""
_THREADS: Final = 8
"""How many calls to the token service run at once."""
_MOST: Final = 256
"""How many calls may be under way or wait for a thread. A further one is refused at once."""
_KEPT: Final = 10_000
"""How many keys are kept at once."""


@dataclass(frozen=True)
class Made:
    """A new key: properties of a file system, and how long they are valid from the start of the call (seconds)."""

    config: Mapping[str, str] = field(repr=False)
    life: float


@dataclass
class _Asked:
    """A call to the token service."""

    ends: float = inf
    """Until this time the key is given out: half of the key's life after the call began."""
    wanted: float = 0.0
    """Until this time a request waits for the call. After it, the call is not begun."""
    config: Future[Mapping[str, str]] = field(init=False)


class KeptKeys:
    """The keys of one warehouse."""

    def __init__(self, name: str) -> None:
        """``name``: that of its threads."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"metastore-{name}")
        self._kept: LRUCache[KeyOf, _Asked] = LRUCache(_KEPT)
        self._open = 0
        """How many calls are under way or wait for a thread."""
        self._lock = Lock()

    def get(self, key: KeyOf, make: Callable[[], Made]) -> Mapping[str, str]:
        """Return the kept key, or that of ``make``, which runs in a thread of its own. Raises CannotVend."""
        now = SYSTEM.monotonic()
        with self._lock:
            asked = self._kept.get(key)
            if asked is None or now >= asked.ends:
                asked = self._ask(key, make)
            asked.wanted = now + _PATIENCE
        try:
            return asked.config.result(_PATIENCE)
        except TimeoutError:  # the call for the key continues, and a later request joins it
            raise _no_answer() from None

    def _ask(self, key: KeyOf, make: Callable[[], Made]) -> _Asked:
        """Send a call to a thread. The caller holds the lock."""
        if self._open >= _MOST:
            raise CannotVend(f"{self._open} requests wait for the token service")
        asked = _Asked()
        asked.config = self._threads.submit(self._call, key, asked, make)
        self._kept[key], self._open = asked, self._open + 1
        return asked

    def _call(self, key: KeyOf, asked: _Asked, make: Callable[[], Made]) -> Mapping[str, str]:
        """Ask for a key if a request still waits for it; forget the call if it brings no key."""
        try:
            with self._lock:
                begun = SYSTEM.monotonic()
                if begun >= asked.wanted:
                    self._forget(key, asked)  # under the same lock: no request can join it later
                    raise _no_answer()  # a request that still waits gets this error
            made = make()
            with self._lock:
                asked.ends = begun + made.life / 2
            return made.config
        except BaseException:
            with self._lock:
                self._forget(key, asked)
            raise
        finally:
            with self._lock:
                self._open -= 1

    def _forget(self, key: KeyOf, asked: _Asked) -> None:
        if self._kept.get(key) is asked:
            del self._kept[key]


def _no_answer() -> CannotVend:
    return CannotVend(f"the token service did not answer within {_PATIENCE:g} s")
