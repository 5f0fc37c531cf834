"""Keep one process a member: a thread joins, serves, is fenced, and joins again.

========  =====================================================================================================
joining   It is registered, and acknowledges. It keeps no answers before all transactions older than its generation
          are over.
serving   It looks after each announcement, evicts, and acknowledges new announcements. It renews its lease every third
          of the ttl.
fenced    The lease is over, its row is gone, or the store now asks another server. Entries are never used again; it
          joins with a new CacheLease.
left      Its store was closed or dropped, or the process ends. Its row is removed: no writer waits for it.
========  =====================================================================================================
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from metastore.cache.fence import CacheLease
from metastore.clock import Clock, Instant
from metastore.deadlines import until
from metastore.errors import BackendRefused, MetastoreError
from metastore.port.members import Announcement, MemberRows, Membership, Wake

__all__ = ["Abandoned", "Member", "Shown"]

_POLLS: Final = 0.05
"""How often a member looks while a change is announced, or was recently (seconds)."""
_OLDEST_POLLS: Final = 0.005
"""How soon a joining member asks again, at first, whether older transactions are over (seconds)."""
_SOON: Final = 0.01
"""After a look, another look within this time is not worth the cost (seconds)."""
_LATELY: Final = 1.0
_BLIND_POLLS: Final = 0.2
"""How often a member that cannot listen looks, if no change was announced recently (seconds)."""
_LEAVES: Final = 1.0
"""How long leaving may take (seconds). If it takes longer, writers wait until the lease is over."""
_WHY: Final = "its registration was removed while it joined"
_log = logging.getLogger("metastore")


class Abandoned(Exception):
    """No store uses the cache any more: it was dropped without being closed."""


class Shown(NamedTuple):
    """The result of a look."""

    pending: bool
    """Whether a change is announced and not yet committed."""
    new: bool
    """Whether the look showed an announcement that no earlier look has shown."""


class Member:
    """The membership of this process; see the module. Reads use only its ``lease``."""

    def __init__(
        self,
        rows: MemberRows,
        clock: Clock,
        ttl: float,
        new_lease: Callable[[], CacheLease],
        see: Callable[[CacheLease, Sequence[Announcement], bool], Shown],
    ) -> None:
        """``see`` evicts the entries of new announcements; its last argument says whether all are new.

        ``new_lease`` and ``see`` may raise Abandoned.
        """
        self._rows, self._clock, self._ttl = rows, clock, ttl
        self._new_lease, self._see = new_lease, see
        self.lease = new_lease()
        self.fences = 0
        self.membership: Membership | None = None
        self._wake: Wake | None = None
        self._fresh = True  # True until the first look on a connection, which shows only new announcements
        self._pending = False
        self._looked_at = -1e9
        self._news = -1e9  # when a look last showed an announced change
        self._closed = threading.Event()
        self.served = threading.Event()
        self.refused: BackendRefused | None = None
        """The error if the database denied joining: the member does not try again."""
        self._again = threading.Event()
        """Set when the member must join again, on a new connection."""
        self._moving = threading.Lock()  # held while the lease is extended, and while another thread ends it
        self._process = os.getpid()
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made the member; False in a forked child."""
        return self._process == os.getpid()

    @property
    def runs(self) -> bool:
        """Whether the member's thread has started in this process."""
        return self._thread is not None and self.is_of_this_process

    def begin(self) -> None:
        """Start the thread. If an interrupt leaves open whether it started, call this again."""
        if not self.runs:
            threading.Thread(target=self._run, name="metastore cache", daemon=True).start()

    def look(self) -> None:
        """Make the thread look at once."""
        if self._wake is not None:
            self._wake.wake()

    def join_again(self) -> None:
        """End the lease, and make the thread join again: answers that were read until now become invalid."""
        if not self.is_of_this_process:
            return  # the lease ended with the fork, and the parent's thread may have held the lock
        with self._moving:
            self._again.set()
            self.lease.end()
        self.look()

    def look_soon(self) -> None:
        """Make the thread look at once, unless it looked a moment ago."""
        if self._clock.monotonic() - self._looked_at > _SOON:
            self.look()

    def close(self) -> None:
        """End the lease; then the thread removes the registration, so that no writer waits for this member."""
        self.lease.end()
        if not self.is_of_this_process:
            return
        self._closed.set()
        if self._wake is not None:
            self._wake.wake()
        if self._thread is not None:
            self._thread.join(_LEAVES)
        self.lease.end()  # again, because the thread may have begun a new lease meanwhile

    # --- the thread

    def _run(self) -> None:
        with self._beginning:
            if self._thread is not None:  # another call has started a thread
                return
            self._thread = threading.current_thread()
        try:
            self._go_on()
        finally:
            self._fence()
            self._leave()
            self._disconnect()

    def _go_on(self) -> None:
        wait = 0.05
        while not self._closed.is_set():
            try:
                self._join()
                wait = 0.05
                self._serve()
            except Abandoned:
                return
            except Exception as error:  # noqa: BLE001  (a thread that ended would end the cache for good)
                if isinstance(error, BackendRefused) and not self.served.is_set():
                    self.refused = error
                    self.served.set()
                    return
                _log.warning("the lease cache does not serve: %s; it joins again", error)
                self._disconnect()
                self._closed.wait(wait)
                wait = min(wait * 2, 1.0)
            finally:
                self._fence()

    def _leave(self) -> None:
        if self.membership is not None:
            with suppress(MetastoreError), until(self._clock.monotonic() + _LEAVES):
                self._rows.leave(self._wake, self.membership)

    def _fence(self) -> None:
        if self.lease.serving:
            self.fences += 1
        self.lease.serving = False
        self.lease.end()

    def _in_time(self) -> float:
        return self._clock.monotonic() + self._ttl / 3

    def _join(self) -> None:
        """Register, and wait until all transactions that did not announce their changes are over."""
        rows = self._rows
        lease = self._new_lease()  # first: if the store was dropped, this raises Abandoned before any query
        since = Instant.now(self._clock)
        if self._again.is_set():
            self._disconnect()
            self._again.clear()  # cleared first: a connect that finds another server sets the event again
        with until(self._in_time()):
            if self._wake is None:
                self._wake, self._fresh = rows.wake(), True
            self.membership = rows.join(
                self._wake, self.membership, round(self._ttl * 1e6), socket.gethostname(), os.getpid()
            )
            # begin a second transaction after the registration is committed. A sequence shows its new value earlier:
            # until the commit, a writer may see the new generation without the member, and announce nothing
            mine = rows.begin(self._wake)
        since = self._outwait(lease, mine, since)
        if self._closed.is_set():
            return  # older transactions may still run, so the cache must not serve
        with until(self._in_time()):
            if not self._looked(lease, checks=True):
                raise _Gone(_WHY)
        with self._moving:
            if self._again.is_set():
                return
            lease.last(since, self._ttl)
            lease.serving = True
            self.lease = lease
        self._since = since
        self.served.set()

    def _outwait(self, lease: CacheLease, mine: int, since: Instant) -> Instant:
        """Wait until all transactions before ``mine`` are over; return the instant of the last renewal.

        This may take as long as the longest transaction in the cluster. Writers already wait for this member meanwhile,
        so it looks and acknowledges.
        """
        assert self._wake is not None
        pause = _OLDEST_POLLS
        while not self._closed.is_set():
            with until(self._in_time()):
                if self._rows.oldest(self._wake) > mine:
                    break
                now = Instant.now(self._clock)
                renew = now.monotonic - since.monotonic > self._ttl / 3
                if not self._looked(lease, renew=renew):
                    raise _Gone(_WHY)
                since = now if renew else since
            self._wake.wait(pause)
            pause = min(pause * 1.5, _POLLS)
        return since

    def _serve(self) -> None:
        """Look and renew until the registration is gone; after a reconnection, continue with the same lease."""
        wait = 0.05
        while not self._closed.is_set():
            try:
                if self._wake is None:
                    with until(self._in_time()):
                        self._wake, self._fresh = self._rows.wake(), True
                if not self._once():
                    return
                wait = 0.05
            except MetastoreError as error:
                self._disconnect()
                if not self.lease.holds():
                    raise
                _log.warning("the lease cache lost its connection and opens another: %s", error)
                self._closed.wait(min(wait, self._ttl / 10))
                wait = min(wait * 2, 1.0)

    def _once(self) -> bool:
        assert self._wake is not None
        if self._again.is_set():
            return False
        now = Instant.now(self._clock)
        late = not self.lease.holds()
        renew = late or now.monotonic >= self._since.monotonic + self._ttl / 3
        with until(self._in_time()):
            alive = self._looked(self.lease, renew=renew)
        if not alive:
            return False
        if renew:
            # extend even a lease that had ended: the member's row exists, so no writer has given the member up, and
            # this look has evicted everything that was announced meanwhile
            with self._moving:
                if self._again.is_set():
                    return False
                self.fences += late
                self.lease.last(now, self._ttl)
            self._since = now
            with until(self._in_time()):
                self._rows.tidy(self._wake)
        self._wake.wait(self._pause())
        return True

    def _pause(self) -> float:
        """Return how long to wait for an announcement (seconds)."""
        due = max(0.0, self._since.monotonic + self._ttl / 3 - self._clock.monotonic())
        if self._pending or self._clock.monotonic() - self._news < _LATELY:
            return min(due, _POLLS)
        assert self._wake is not None
        return min(due, 1.0 if self._wake.listens else _BLIND_POLLS)

    def _looked(self, lease: CacheLease, *, renew: bool = False, checks: bool = False) -> bool:
        """Look, evict, and acknowledge news; ``checks``: acknowledge in any case.

        Return False if the member is no longer registered.
        """
        assert self._wake is not None
        assert self.membership is not None
        self._looked_at = self._clock.monotonic()
        found = self._rows.look(
            self._wake, self.membership, lambda announced: self._apply(lease, announced) or checks, renew=renew
        )
        self.membership = found or self.membership  # if the row is gone, the next join still names it
        return found is not None

    def _apply(self, lease: CacheLease, announced: Sequence[Announcement]) -> bool:
        """Evict the entries of new announcements; return whether there is something to acknowledge.

        Announcements that an earlier look on this connection showed are acknowledged already. So no writer waits for
        this look because of them.
        """
        fresh, self._fresh = self._fresh, False
        shown = self._see(lease, announced, fresh)
        self._pending = shown.pending
        if announced:
            self._news = self._clock.monotonic()
        return shown.new or fresh

    def _disconnect(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            with suppress(MetastoreError):
                wake.close()


class _Gone(Exception):
    """The registration was removed while the member was joining."""
