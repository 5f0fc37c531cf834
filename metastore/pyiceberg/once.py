"""Apply a request at most once under its idempotency key, whichever server gets the repeat.

The operation ids of attempts 0, 1, 2, … follow from the key. So each server sees in the database what became of each
attempt. If one has committed, the request is done. One that failed is over. One that is still open may yet commit: then
the next swap fails, because the pointer has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from pyiceberg.exceptions import CommitStateUnknownException

from metastore.errors import OperationIdReused
from metastore.operation.keys import key

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Once"]

T = TypeVar("T")


class Once:
    """The attempts of one request. ``text``: its idempotency key, or None; ``scope``: whose key, and of which call."""

    def __init__(self, store: Store, text: str | None = None, scope: str = "") -> None:
        self._store = store
        self._text = text
        self._scope = scope
        self._over = 0
        """How many attempts, counted from the first one, have failed for good."""

    def begin(self) -> dict[str, Any] | None:
        """Return the options of the next attempt's call; None: an attempt has committed.

        Read everything that the attempt rests on before you call this: then no earlier attempt can commit unnoticed.
        """
        if self._text is None:
            return {}
        number = self._over
        while True:
            operation = self._id(number)
            state = self._store.outcome(operation).state
            if state == "committed":
                return None
            if state == "unknown":
                return {"operation_id": operation}
            if state == "failed" and number == self._over:
                self._over += 1
            number += 1

    def has_committed(self) -> bool:
        """Whether an attempt under the key has committed; without a key, that is not known: False."""
        return self._text is not None and self.begin() is None

    def run(self, attempt: Callable[[dict[str, Any]], T], answer: Callable[[], T]) -> T:
        """Return what ``attempt(options)`` returns, or ``answer()`` if an attempt has committed already."""

        def attempts() -> T:
            while (options := self.begin()) is not None:
                try:
                    return attempt(options)
                except OperationIdReused:
                    continue  # another server has sent this attempt
            return answer()

        return self.guard(attempts, answer)

    def guard(self, work: Callable[[], T], answer: Callable[[], T]) -> T:
        """Return what ``work()`` returns; ``answer()`` if it fails because an attempt has committed already."""
        try:
            return work()
        except CommitStateUnknownException:
            raise
        except Exception:
            if not self.has_committed():
                raise
        return answer()

    def _id(self, number: int) -> UUID:
        return key(f"{self._text}/{number}", scope=self._scope)
