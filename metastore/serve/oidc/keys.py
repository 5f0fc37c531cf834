"""The keys of an issuer from its last answer, and the rules for asking it again.

An unknown key makes the server ask at most once in 30 seconds, whatever clients send. All requests that need the key
wait for the same answer. Every five minutes the server asks in the background, so that withdrawn keys end too. While
the issuer does not answer, the known keys stay.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Final

from metastore.clock import Clock
from metastore.serve.oidc.asking import SECONDS, answered
from metastore.serve.oidc.tokens import Key
from metastore.serve.principals import IssuerAway, NotAuthenticated

__all__ = ["Keys"]

_PAUSE: Final = 30.0
"""How long after a question an unknown key starts no new question (seconds)."""
_OLD: Final = 300.0
"""After how long the issuer is asked although all keys are known (seconds)."""
_LOG = logging.getLogger("metastore.serve")


class Keys:
    """The keys of one issuer. Threads and event loops may share it."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, dict[str, Key]]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._asked = -math.inf
        self._answered = False
        """Whether the issuer answered the last question. If it did, an unknown key is not one of its keys."""
        self._question: Future[None] | None = None
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(1, "metastore-oidc")

    def get(self, kid: str) -> Key | None:
        """Return a known key."""
        return self._keys.get(kid)

    def key(self, kid: str) -> Key:
        """Return a key.

        Raises NotAuthenticated if the issuer has no key with this id, IssuerAway if it did not answer.
        """
        key = self._keys.get(kid)
        if key is not None:
            return key
        if self._answered and self._question is None:
            raise NotAuthenticated("the token is signed by a key that the issuer does not have")
        raise IssuerAway("the issuer of the token does not answer, so the token cannot be checked now; try again")

    async def ready(self, kid: str) -> None:
        """Return as soon as the key is known, or the issuer has been asked for it. It never blocks the event loop."""
        is_known = kid in self._keys
        question = self._asking(_OLD if is_known else _PAUSE)
        if question is not None and not is_known:
            # the question itself is not awaited: a client that goes away must not cancel it for the others
            await asyncio.wait([asyncio.wrap_future(question)], timeout=2 * SECONDS)

    def _asking(self, after: float) -> Future[None] | None:
        """Return the question that is under way; start one if the last one began at least ``after`` seconds ago."""
        with self._lock:
            now = self._clock.monotonic()
            if self._question is None and now - self._asked >= after:
                self._asked = now
                self._question = self._thread.submit(self._renew)
            return self._question

    def _renew(self) -> None:
        try:
            found = answered(self._ask())
        except Exception as error:  # noqa: BLE001  (whatever an issuer answers, the known keys stay)
            _LOG.warning("the issuer's keys stay as they were: %s: %s", type(error).__name__, error)
            self._answered = False
        else:
            # an equal key stays the same object, so that tokens which it verified stay known
            known = self._keys
            self._keys = {kid: known[kid] if known.get(kid) == key else key for kid, key in found.items()}
            self._answered = True
        with self._lock:
            self._question = None
