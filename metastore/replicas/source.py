"""One server to read from, and the position up to which it surely shows everything.

A state shows *all* up to a position if each change with a lower position is in it, or was never committed. This holds
once all transactions that could have drawn a lower position are over (see :mod:`metastore.port.replica`). Until then,
the earlier answers of a replica still count, because a running replica never goes back. After a restart a replica may
be further back, so answers from before a new connection no longer count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from metastore.clock import Clock
from metastore.deadlines import remaining, until
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    MigrationNeeded,
    PoolExhausted,
)
from metastore.feed.feed import number_in
from metastore.port.feed import database_of
from metastore.port.replica import NewestChange, ReplicaBackend, Shown

__all__ = ["FAILURES", "Reached", "Source"]

FAILURES: Final = (BackendUnavailable, DeadlineExceeded, MigrationNeeded)
"""The errors of a replica after which the primary or another replica may still answer."""
_RESTS: Final = 5.0
"""How long a server is not asked after it failed (seconds)."""
_OPENS: Final = 2.0
"""How long opening a store waits for a replica (seconds)."""
_log = logging.getLogger("metastore")


class Reached(NamedTuple):
    """The position up to which a server surely shows everything, on the connections that were open then."""

    opened: object
    newest: NewestChange


class _Known(NamedTuple):
    """The state that the answers on the same connections have shown."""

    opened: object
    whole: NewestChange | None
    """Everything up to here is shown."""
    waiting: Shown | None
    """An answer that is not complete until the transactions of its time are over."""


class Source:
    """A server to read from; see the module. Thread-safe: each thread sets ``_known`` to a true state."""

    def __init__(self, name: str, backend: ReplicaBackend, epoch: str, clock: Clock, *, primary: bool = False) -> None:
        """``name`` is the server's URL without its secrets, ``epoch`` that of the database's feed."""
        self.name, self.backend, self._primary = name, backend, primary
        self._database, self._clock = epoch, clock
        self.epoch = epoch
        """The primary's epoch when it last had this server's newest change; a replica does not tell its timeline."""
        self._known = _Known(None, None, None)
        self._rests_until = -1.0
        self.compared: tuple[object, str | None] | None = None
        """The connections to this server, and the primary's run, when both last agreed; None: they have not yet."""

    def begin(self) -> None:
        """Check the server when the store is opened. If it does not answer, let it rest. Raises InvalidArgument."""
        try:
            with until(self._clock.monotonic() + _OPENS):
                self._shows()
        except FAILURES as error:
            self.failed(error)

    def reached(self, at_least: str | None) -> Reached | None:
        """Return the position that the server shows; None if it is unknown, or lower than ``at_least`` (None: any).

        Raises the database's errors, and InvalidArgument if another change is at the position.
        """
        found = self._shows()
        if found is None or at_least is None:
            return found
        return found if found.newest.seq >= number_in(self.backend, at_least) else None

    def _shows(self) -> Reached | None:
        while True:
            opened, known = self.backend.opened, self._known
            if known.opened is not opened:
                self._check()
                known = _Known(opened, None, None)
            shown = self.backend.shown()
            if not (shown.replica or self._primary):
                raise BackendUnavailable(f"{self.name} is a primary of its own now; take it out of read_from")
            if self.backend.opened is opened:  # otherwise it may have been restarted in between: ask again
                self._known = known = _after(known, shown)
                return None if known.whole is None else Reached(opened, known.whole)

    def _check(self) -> None:
        """Raise InvalidArgument if the server belongs to another database, MigrationNeeded if it has no schema."""
        if self.backend.format() is None:
            raise MigrationNeeded(f"{self.name} has no schema, so it is not a replica; check read_from")
        if database_of(self.backend.feed_start()[0]) != self._database:
            raise InvalidArgument(f"read_from has {self.name}, which is not a replica of this database; take it out")

    # --- after a failure

    @property
    def rests(self) -> bool:
        """Whether the server failed a short time ago, and is not asked."""
        return self._clock.monotonic() < self._rests_until

    def failed(self, error: MetastoreError) -> None:
        """Let the server rest: do not ask it for a while.

        Raises the error again if the server did not cause it: the caller's time is over, or no connection is free.
        """
        if isinstance(error, PoolExhausted) or (isinstance(error, DeadlineExceeded) and remaining(self._clock, 1) <= 0):
            raise error
        if not self.rests:
            _log.warning("the replica %s failed: %s; it is not read for the next %.0f s", self.name, error, _RESTS)
        self._rests_until = self._clock.monotonic() + _RESTS

    def asked(self, at_least: str | None, check: Callable[[str], None], ends: float) -> Reached | None:
        """Return the result of :meth:`reached`; None if the server failed or has another change there. Then it rests.

        A server that does not answer by the time ``ends`` has failed. If no connection to the server is free, return
        None, too, but do not let it rest. ``check`` raises InvalidArgument if the position is wrong: the primary has
        another change there, too.
        """
        try:
            with until(ends):
                return self.reached(at_least)
        except (*FAILURES, InvalidArgument) as error:  # outside of the block: only the caller's own time counts here
            if isinstance(error, InvalidArgument) and at_least is not None:
                check(at_least)
            if not isinstance(error, PoolExhausted) or remaining(self._clock, 1) <= 0:
                self.failed(error)
            return None


def _after(known: _Known, shown: Shown) -> _Known:
    """Return the known state after one more answer."""
    if shown.oldest >= shown.next:
        return known._replace(whole=_later(known.whole, shown.newest), waiting=None)
    if known.waiting is not None and shown.oldest >= known.waiting.next:
        return known._replace(whole=_later(known.whole, known.waiting.newest), waiting=shown)
    return known._replace(waiting=known.waiting or shown)


def _later(one: NewestChange | None, other: NewestChange) -> NewestChange:
    return other if one is None or other.seq >= one.seq else one
