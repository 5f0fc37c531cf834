"""Wait for leases in the order of arrival, with one ticket in the queue of each lease.

A waiter makes its ticket when it arrives: from the present time, or from a time after all tickets in its queues. It has
the same ticket in all its queues, so two waiters can never each be ahead of the other, even if clocks differ. The
waiter writes every few seconds that it is alive. In between it checks whether its turn has come: each time after a
tenth of the time that it has waited, and at least once a second. It never counts as alive after the deadline of its
call.

Hudi's files have no queue. There, waiters only read, at random times, and the first one gets the lease.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Self

from metastore.clock import Clock
from metastore.errors import MetastoreError
from metastore.leases.book import Want
from metastore.leases.objects.tickets import Tickets
from metastore.leases.objects.watch import ALIVE, Waiter

__all__ = ["ObjectQueue"]

_SHOW = ALIVE / 3
_LEAST, _SHARE, _MOST = 0.02, 0.1, 1.0
"""The next look comes after ``_SHARE`` of the time waited, within these limits (seconds)."""
_LEAVING = 2.0
_MICROS = 1_000_000


class ObjectQueue:
    """A place in the queue of each lease (:class:`metastore.leases.book.Queue`)."""

    def __init__(self, tickets: Tickets, clock: Clock, want: Want, ends: float, queued: bool) -> None:
        """Wait for the leases of ``want``. ``ends``: the deadline of the call."""
        self._tickets, self._clock, self._ends = tickets, clock, ends
        self._names = want.names if queued else ()
        self._since = self._shown = clock.monotonic()
        self._places: dict[str, Waiter] = {}
        self.ticket = ""

    def __enter__(self) -> Self:
        ends = min(self._ends, self._since + ALIVE)
        try:
            others = [waiter for name in self._names for waiter in self._tickets.waiting(name, ends)]
            last = max([int(waiter.ticket[:16], 16) for waiter in others], default=0)
            self.ticket = f"{max(self._clock.micros(), last + 1):016x}-{self._clock.operation_id().hex}"
            for name in self._names:
                self._show(name, ends)
        except BaseException:
            self._leave()
            raise
        return self

    def wait(self, seconds: float) -> None:
        now = self._clock.monotonic()
        if now - self._shown >= _SHOW:
            self._shown = now
            with suppress(MetastoreError):  # the caller asks for the lease next, and that request reports the problem
                for name in self._names:
                    self._show(name, now + _SHOW)
        look = min(_MOST, max(_LEAST, (now - self._since) * _SHARE))
        self._clock.sleep(max(0.0, min(seconds, self._clock.uniform(look / 2, look))))

    def served(self) -> None:
        self._leave()  # before the caller works, because this place must not stay ahead of the other waiters

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _show(self, name: str, ends: float) -> None:
        """Join the queue of a lease, or keep the ticket there alive."""
        before = self._places.get(name)
        left = max(0.0, min(ALIVE, self._ends - self._clock.monotonic()))
        place = Waiter(self.ticket, self._clock.micros() + round(left * _MICROS))
        self._places[name] = place  # set before the request, so that it is removed even if the answer is lost
        self._tickets.put(name, place, ends)
        if before is not None and before != place:
            self._tickets.remove(name, before, ends)

    def _leave(self) -> None:
        """Leave all queues. A waiter that cannot leave counts as dead soon after."""
        while self._places:
            name, place = self._places.popitem()
            with suppress(MetastoreError):
                self._tickets.remove(name, place, self._clock.monotonic() + _LEAVING)
