"""Wait for leases in the order of arrival. The queue is a part of each lock file.

A waiter has one ticket, which it makes when it enters the first of its files: the time, or a later one than that of
all tickets there. It has the same ticket in all its files, so that two waiters are never each before the other. Where
clocks differ, the order over several names is that of the tickets. The waiter writes every few seconds that it is
alive, and reads in between: after a tenth of the time that it has waited, at most a second.

Hudi's files have no queue. There, waiters only read, at random times, and the first one gets the lease.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import TracebackType
from typing import Self

from metastore.clock import Clock
from metastore.deadlines import remaining
from metastore.errors import MetastoreError
from metastore.leases.book import Want
from metastore.leases.objects.cells import Cells, Done
from metastore.leases.objects.lock_file import LockFile, Waiter
from metastore.leases.objects.watch import ALIVE, Watch

__all__ = ["ObjectQueue"]

_SHOW = ALIVE / 3
_LEAST, _SHARE, _MOST = 0.05, 0.1, 1.0
"""The next read comes after ``_SHARE`` of the time waited, within these limits (seconds)."""
_LEAVING = 2.0
_MICROS = 1_000_000


class ObjectQueue:
    """A place in the queue of each name, as :class:`metastore.leases.book.Queue` has it."""

    def __init__(self, cells: Cells, watch: Watch, clock: Clock, want: Want, queued: bool) -> None:
        self._cells, self._watch, self._clock = cells, watch, clock
        self._names, self._owner = want.names if queued else (), want.owner
        self._end = clock.operation_id().hex
        self._since = self._shown = clock.monotonic()
        self.ticket = ""
        self._served = False

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                self._show(name, self._clock.monotonic() + remaining(self._clock, ALIVE))
        except BaseException:
            self._leave()
            raise
        return self

    def wait(self, seconds: float) -> None:
        now = self._clock.monotonic()
        if now - self._shown >= _SHOW:
            self._shown = now
            with suppress(MetastoreError):  # whether it can be had is asked next, and says what is wrong
                for name in self._names:
                    self._show(name, now + _SHOW)
        look = min(_MOST, max(_LEAST, (now - self._since) * _SHARE))
        self._clock.sleep(max(0.0, min(seconds, self._clock.uniform(look / 2, look))))

    def served(self) -> None:
        self._served = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not (self._served and len(self._names) == 1):  # the only one was left when it was taken
            self._leave()

    def _show(self, name: str, ends: float) -> None:
        """Stand in the queue of a name, and keep the ticket alive."""

        def decide(file: LockFile | None, tried: AbstractSet[str], nonce: str) -> LockFile | Done[LockFile | None]:
            if file is None or file.nonce in tried:
                return Done(file)
            others = [waiter for waiter in self._watch.alive(file) if not waiter.ticket.endswith(self._end)]
            now = self._clock.micros()
            ticket = self.ticket or self._found(file) or self._ticket(others, now)
            return file.queued(nonce, (*others, Waiter(ticket, self._owner, now + round(ALIVE * _MICROS))))

        file = self._cells.change(name, decide, ends)
        if not self.ticket:
            here = None if file is None else self._found(file)
            self.ticket = here or self._ticket((), self._clock.micros())

    def _found(self, file: LockFile) -> str | None:
        return next((waiter.ticket for waiter in file.waiting if waiter.ticket.endswith(self._end)), None)

    def _ticket(self, others: list[Waiter] | tuple[()], now: int) -> str:
        last = max([int(waiter.ticket[:16], 16) for waiter in others], default=0)
        return f"{max(now, last + 1):016x}-{self._end}"

    def _leave(self) -> None:
        """Leave all queues. A waiter that fails to leave counts as dead soon after."""

        def decide(file: LockFile | None, _: AbstractSet[str], nonce: str) -> LockFile | Done[None]:
            if file is None or self._found(file) is None:
                return Done(None)
            return file.queued(nonce, tuple([w for w in file.waiting if not w.ticket.endswith(self._end)]))

        for name in self._names:
            with suppress(MetastoreError):
                self._cells.change(name, decide, self._clock.monotonic() + _LEAVING)
