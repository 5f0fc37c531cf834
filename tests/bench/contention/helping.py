"""Our own policy: the library as anybody calls it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import metastore as ms
from metastore.port.backend import Backend
from metastore.retry.policy import Attempt
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
        self._store = ms.open(url, principal="bench", deadline=DEADLINE, hooks=(self._note,))
        self._tables = self._store.tables
        self._hand: dict[int, ms.Table] | None = {} if in_hand else None
        if work.attempt:
            session = self._store._session
            session.backend = cast(Backend, _Slow(session.backend, work.attempt))

    def _note(self, attempt: Attempt) -> None:
        self.attempts = attempt.number

    def add(self, row: Row) -> None:
        self.attempts = 1
        target = row.path if self._hand is None else self._hand.pop(row.id, row.path)
        table = self._tables.alter(target, self._change)
        if self._hand is not None:
            self._hand[row.id] = table

    def close(self) -> None:
        self._store.close()
