"""Ensure that only one thread at a time uses a transaction; several may use it in turns, as a thread pool does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from metastore.errors import InvalidArgument


class OneAtATime:
    """A wrapper of an overlay that refuses calls from another thread during a call."""

    def __init__(self, overlay: object) -> None:
        self._overlay = overlay
        self._busy = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._overlay, name)
        return self._alone(value) if callable(value) else value

    def _alone(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def alone(*arguments: Any, **options: Any) -> Any:
            if not self._busy.acquire(blocking=False):
                raise InvalidArgument(
                    "two threads use one transaction at the same moment; let one wait for the other, "
                    "or begin a transaction in each thread"
                )
            try:
                return call(*arguments, **options)
            finally:
                self._busy.release()

        return alone
