"""Our own policy: the library as anybody calls it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import metastore as ms
from metastore.backends.port import Backend
from metastore.retry.policy import Attempt
from metastore.store import Store
from tests.bench.contention.cells import Work
from tests.bench.contention.change import COUNTER, Add
from tests.bench.contention.policy import DEADLINE, Row

__all__ = ["Helping"]


class _Slow:
    """A backend whose caller works before each commit of its own, and before each batch of intents."""

    _WORKED_FOR = ("commit", "help")

    def __init__(self, backend: Any, seconds: float) -> None:
        self._backend = backend
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        return self._after_work(found) if name in self._WORKED_FOR else found

    def _after_work(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def worked_for(*arguments: Any, **options: Any) -> Any:
            time.sleep(self._seconds)
            return method(*arguments, **options)

        return worked_for


class Helping:
    """``store.tables.alter`` by path; with what it returned last, where nobody else writes the entity."""

    def __init__(self, url: str, work: Work, in_hand: bool) -> None:
        self.attempts = 0
        self._change = Add(COUNTER, "1", seconds=work.applied)
        self._store, self._hooked = self._opened(url)
        self._tables = self._store.tables
        self._hand: dict[int, ms.Table] | None = {} if in_hand else None
        if work.attempt:
            session = self._store._session
            session.backend = cast(Backend, _Slow(session.backend, work.attempt))

    def _opened(self, url: str) -> tuple[Store, bool]:
        opening: Any = ms.open
        try:
            return opening(url, principal="bench", deadline=DEADLINE, hooks=(self._note,)), True
        except TypeError:  # before there were hooks
            return opening(url, principal="bench", deadline=DEADLINE), False

    def _note(self, attempt: Attempt) -> None:
        """Hear of an attempt. The last one may go unsaid, since it did not fail."""
        self.attempts = attempt.number + (attempt.cause is not None)

    def add(self, row: Row) -> None:
        self.attempts, before = 1, 0 if self._hooked else self._store.counters["attempts"]
        target = row.path if self._hand is None else self._hand.pop(row.id, row.path)
        try:
            table = self._tables.alter(target, self._change)
        finally:
            if not self._hooked:
                self.attempts = self._store.counters["attempts"] - before
        if self._hand is not None:
            self._hand[row.id] = table

    def close(self) -> None:
        self._store.close()
