"""The queue of a lease: one empty object for each waiter. The key holds all data, so one LIST reads the queue.

``<lease>.queue/<arrival>-<waiter>.<until>``: the time of arrival, the waiter's id, and the time until which it counts
as alive (µs, in hexadecimal digits). A waiter writes only its own object, so it never loses a race: even a holder that
acquires and releases without a pause, and so writes the lock file all the time, cannot keep others from joining the
queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from metastore.clock import Clock
from metastore.errors import MetastoreError
from metastore.leases.objects.client import ConditionFailed, Objects, Unsettled
from metastore.leases.objects.effort import Effort
from metastore.leases.objects.format import Format
from metastore.leases.objects.watch import Waiter, Watch

__all__ = ["Tickets"]

_KEY = re.compile(r"([0-9a-f]{16}-[0-9a-f]{32})\.([0-9a-f]{16})")
_GONE = 60_000_000
"""How long after its end the ticket of a dead waiter is removed (µs). A stopped waiter writes it again."""
_AT_ONCE = 10
"""How many such tickets one look removes."""


class Tickets:
    """The queues of one place."""

    def __init__(self, objects: Objects, form: Format, url: str, clock: Clock, watch: Watch) -> None:
        self._objects, self._form, self._url, self._clock, self._watch = objects, form, url, clock, watch

    def waiting(self, name: str, ends: float) -> tuple[Waiter, ...]:
        """Return the waiters of a lease that are alive, in the order of arrival. Raises the errors of Effort."""
        if not self._form.own:
            return ()
        keys = self._keys(self._form.queue(name), ends)
        self._tidy(keys)
        return self.among(name, keys)

    def among(self, name: str, keys: Iterable[str]) -> tuple[Waiter, ...]:
        """Return the waiters of a lease whose tickets are among these keys, and that are alive."""
        folder, until = f"{self._form.queue(name)}/", dict[str, int]()
        for key in keys:
            found = _KEY.fullmatch(key.removeprefix(folder)) if key.startswith(folder) else None
            if found is not None:  # while a waiter renews its place, it has two keys
                until[found[1]] = max(until.get(found[1], 0), int(found[2], 16))
        waiters = [Waiter(ticket, until[ticket]) for ticket in sorted(until)]
        self._watch.note_queue(name, waiters)
        return tuple([waiter for waiter in waiters if self._watch.is_alive(name, waiter)])

    def _keys(self, folder: str, ends: float) -> list[str]:
        effort = Effort(self._clock, self._url, ends)
        while True:
            effort.check()
            try:
                return list(self._objects.keys(folder))
            except Unsettled as trouble:
                effort.pause(trouble)

    def _tidy(self, keys: Iterable[str]) -> None:
        """Remove some of the tickets whose waiters died long ago."""
        ended = self._clock.micros() - _GONE
        dead = [key for key in keys if (found := _KEY.fullmatch(key.rpartition("/")[2])) and int(found[2], 16) < ended]
        for key in dead[:_AT_ONCE]:
            with suppress(Unsettled, MetastoreError):  # the next look tries again
                self._objects.delete(key)

    def put(self, name: str, waiter: Waiter, ends: float) -> None:
        """Join the queue of a lease. Raises the errors of Effort."""
        effort = Effort(self._clock, self._url, ends)
        while True:
            effort.check()
            try:
                self._objects.put(self._key(name, waiter), b"", None)
            except ConditionFailed:
                return  # an earlier write, whose answer was lost, created the ticket
            except Unsettled as trouble:
                effort.pause(trouble)
            else:
                return

    def remove(self, name: str, waiter: Waiter, ends: float) -> None:
        """Give up a place in the queue. Raises the errors of Effort; then the place ends with its time."""
        effort = Effort(self._clock, self._url, ends)
        while True:
            effort.check()
            try:
                return self._objects.delete(self._key(name, waiter))
            except Unsettled as trouble:
                effort.pause(trouble)

    def _key(self, name: str, waiter: Waiter) -> str:
        return f"{self._form.queue(name)}/{waiter.ticket}.{waiter.until:016x}"
