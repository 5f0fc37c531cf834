"""Acquire leases, in the order of arrival, from any book."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from metastore.arguments import boolean, items, positive_integer, positive_seconds, shown
from metastore.clock import Alive, Clock
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded, InvalidArgument, LeaseHeld, LeaseLost, MetastoreError, StoreClosed
from metastore.leases.book import Book, Grant, Holder, LeaseEvent, Queue, Refusal, Want
from metastore.leases.hold import Hold, OnLost, Staging
from metastore.leases.lease import Lease, LeaseSet
from metastore.leases.validity import Instant
from metastore.names import clean_name
from metastore.port.unreadable import Unreadable

__all__ = ["Leases"]

H = TypeVar("H", bound=Hold)

_SHARE = 3
"""A ttl has time for at least this many renewals, so two of them may fail."""
_SHORTEST = 0.01
"""The shortest ttl (seconds): a shorter one would be over before its answer."""
_LAST_LOOK = 1.0
"""How long the last attempt, at the end of the timeout, may take (seconds)."""


class _Ours:
    """The leases that one process holds. A forked child holds its own."""

    def __init__(self, clock: Clock) -> None:
        self.incarnation = str(clock.operation_id())
        self.lock = threading.Lock()
        self.held: dict[tuple[tuple[str, ...], str, Alive], Hold] = {}
        self.closed = False
        """Whether the store was closed. Then no lease can be acquired any more."""


class Leases:
    """Leases by name, each with one holder at a time. Thread-safe.

    A name is any string that an entity's name may be (1 to 255 code points). A *holder* is one thread with one owner's
    name and one incarnation: an id of the store that was opened in this process.
    """

    def __init__(self, book: Book, clock: Clock, deadline: float = 30.0, staging: Staging | None = None) -> None:
        self._book, self._clock, self._deadline, self._staging = book, clock, deadline, staging
        self._by_process = {os.getpid(): _Ours(clock)}
        """Shared with the copies of this object for other sessions, also after a fork. (``setdefault`` is atomic.)"""

    @property
    def _ours(self) -> _Ours:
        process = os.getpid()
        return self._by_process.get(process) or self._by_process.setdefault(process, _Ours(self._clock))

    def acquire(
        self,
        name: str,
        *,
        ttl: float = 30.0,
        timeout: float = 0.0,
        owner: str | None = None,
        renew_every: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Lease:
        """Acquire the lease ``name``: ``with store.leases.acquire("compaction") as lease: …``.

        In the ``with`` block, the lease is renewed every ``renew_every`` seconds (None: a quarter of the ttl); the end
        of the block releases it. Without ``with``, it is renewed from the start if ``renew_every`` is given, else only
        by ``lease.renew()``. The renewals end with the last thread that keeps the lease.

        ``ttl``: how long the lease lasts without a renewal. ``timeout``: how long to wait for it, in the order of
        arrival; 0: try once. ``owner``: the name that others see (None: this machine and process). ``on_lost`` is
        called with the lease when it is lost. All times are in seconds.

        If the same owner in the same thread already holds the lease, the call renews and returns that lease. So
        ``with`` blocks can be nested; the longest ttl applies.

        Raises LeaseHeld, with the holder and the time when the lease expires: try later, or wait with ``timeout``.
        Raises BackendUnavailable, DeadlineExceeded or OutcomeUnknown if the database did not answer: the lease is not
        acquired. Raises LeaseLost if the answer came after the ttl, and InvalidArgument.
        """
        return self._acquire(Lease, (clean_lease(name),), ttl, timeout, owner, renew_every, on_lost)

    def acquire_many(
        self,
        names: Iterable[str],
        *,
        ttl: float = 30.0,
        timeout: float = 0.0,
        owner: str | None = None,
        renew_every: float | None = None,
        on_lost: OnLost | None = None,
    ) -> LeaseSet:
        """Acquire several leases at once: all of them, or none. Otherwise like :meth:`acquire`.

        A waiter holds none of them, so two callers never wait for each other. The same thread gets them again only by
        the same names together: for one of them alone, :meth:`acquire` finds it held.
        """
        wanted = tuple(sorted({clean_lease(name) for name in items(names, "names")}))
        if not wanted:
            raise InvalidArgument("name at least one lease")
        return self._acquire(LeaseSet, wanted, ttl, timeout, owner, renew_every, on_lost)

    def _acquire(
        self,
        cls: type[H],
        names: tuple[str, ...],
        ttl: float,
        timeout: float,
        owner: str | None,
        renew_every: float | None,
        on_lost: OnLost | None,
    ) -> H:
        ttl, timeout = _clean_times(ttl, timeout, renew_every)
        if on_lost is not None and not callable(on_lost):
            raise InvalidArgument(f"on_lost is a function, not {shown(on_lost)}")
        owner = clean_owner(owner)
        ours, key = self._ours, (names, owner, self._clock.runner())
        with ours.lock:
            held = ours.held.get(key)
        if isinstance(held, cls) and held.again(ttl, renew_every, on_lost):
            return held
        want = Want(names, owner, ours.incarnation, ttl)
        grants, since = self._wait_for(want, timeout)
        hold = cls(
            self._book,
            self._clock,
            grants,
            want,
            since,
            renew_every=renew_every,
            staging=self._staging,
            deadline=self._deadline,
        )
        try:
            hold.check()  # raises if the answer came after the ttl
            hold.watch(on_lost)
            if renew_every is not None:
                hold.keep()
            self._note(key, hold)
        except BaseException:
            hold.end()
            raise
        return hold

    def _note(self, key: tuple[tuple[str, ...], str, Alive], hold: Hold) -> None:
        """Remember a lease, so that its holder can get it again; forget ended leases. Raises StoreClosed."""
        ours = self._ours
        # is_over is called without the lock, because it may call on_lost
        over = [k for k, h in list(ours.held.items()) if h.is_over()]
        with ours.lock:
            for k in over:
                ours.held.pop(k, None)
            if ours.closed:  # the store was closed while the request was under way
                raise StoreClosed
            ours.held[key] = hold

    def _wait_for(self, want: Want, timeout: float) -> tuple[tuple[Grant, ...], Instant]:
        ends = self._clock.monotonic() + timeout
        answer, since = self._take(want, max(timeout, min(self._deadline, want.ttl)))
        if isinstance(answer, Refusal) and timeout > 0:
            with self._book.queue(want, ends) as queue:
                answer, since = self._wait_in(queue, want._replace(ticket=queue.ticket), answer, ends)
        if isinstance(answer, Refusal):
            raise LeaseHeld(answer.name, answer.owner, answer.expires_at, waited=timeout)
        return answer, since

    def _wait_in(
        self, queue: Queue, want: Want, refusal: Refusal, ends: float
    ) -> tuple[tuple[Grant, ...] | Refusal, Instant]:
        answer: tuple[Grant, ...] | Refusal = refusal
        since = Instant.now(self._clock)
        while isinstance(answer, Refusal) and (left := ends - self._clock.monotonic()) > 0:
            try:
                answer, since = self._take(want, max(left, _LAST_LOOK))
            except DeadlineExceeded:
                break  # return the last refusal, which names the holder
            if isinstance(answer, Refusal):
                left = ends - self._clock.monotonic()
                queue.wait(min(left, answer.seconds) if answer.seconds > 0 else left)
            else:
                queue.served()
        return answer, since

    def _take(self, want: Want, patience: float) -> tuple[tuple[Grant, ...] | Refusal, Instant]:
        since = Instant.now(self._clock)
        with until(since.monotonic + patience):
            return self._book.take(want), since

    # --- held leases

    def renew(self, lease: Hold) -> None:
        """Renew a lease for its ttl from now. Raises LeaseLost, BackendUnavailable, DeadlineExceeded."""
        self._mine(lease).renew()

    def release(self, lease: Hold) -> bool:
        """Release a lease. Return False if it was released before, is lost, or a parent process holds it.

        The call may be repeated.
        """
        return self._mine(lease).release()

    def _mine(self, lease: object) -> Hold:
        if not isinstance(lease, Hold):
            raise InvalidArgument(f"a lease must come from acquire, acquire_many or join; got {shown(lease)}")
        return lease

    def join(self, name: str, token: int) -> Lease:
        """Return the lease that a parent process holds and renews, to commit under its token.

        ``metastore lease run NAME -- COMMAND`` passes the name and the token to the command, in METASTORE_LEASE and
        METASTORE_LEASE_TOKEN. This process neither renews nor releases it. Raises LeaseLost if the lease has another
        token, has no holder, or has expired.
        """
        name, token = clean_lease(name), positive_integer(token, "a token")
        granted = self._book.granted(name, token)
        if granted is None or granted[1].expired:
            raise LeaseLost(name, token)
        grant, holder = granted
        ttl = (holder.expires_at - holder.acquired_at).total_seconds()
        asked = Want((name,), holder.owner, holder.incarnation, ttl)
        return Lease(self._book, self._clock, (grant,), asked, None, staging=self._staging)

    def _look_again(self) -> None:
        """Renew now the leases that are renewed, because another server answers now, which may lack the latest ones."""
        for hold in list(self._ours.held.values()):
            hold._look_again()  # noqa: SLF001  (no user calls it)

    def close(self) -> None:
        """Release the leases that this process renews. The others last for their ttl."""
        ours = self._ours
        with ours.lock:
            ours.closed, held = True, list(ours.held.values())
        for hold in held:
            hold.closed()

    # --- look at leases, and break them

    def holder(self, name: str, *, expired: bool = False) -> Holder | None:
        """Return the holder of a lease; None: it has no holder. An expired holder is returned only with ``expired``."""
        boolean(expired, "expired")
        holder = next(iter(self._book.holders((clean_lease(name),))), None)
        return None if holder is None or (holder.expired and not expired) else holder

    def list(self, *, unreadable: Callable[[MetastoreError], object] | None = None) -> Iterator[Holder]:
        """Yield the holders of all leases, by name. A holder whose time is over is ``expired`` until a takeover.

        A lease that cannot be read, such as a damaged lock file, is left out, and ``unreadable`` gets its error.
        Without that function, the first such error is raised after all readable leases.
        """
        errors: list[MetastoreError] = []
        yield from self._book.holders(unreadable=errors.append if unreadable is None else unreadable)
        if errors:
            raise errors[0]

    def break_(self, name: str) -> bool:
        """Take a lease away from its holder, whose commits under it fail from now on. Return False without a holder."""
        return self._book.break_(clean_lease(name))

    def audit(self, name: str, *, unreadable: Unreadable | None = None) -> Iterator[LeaseEvent]:
        """Yield the events of a lease, and the commits under it, oldest first.

        It contains the events that gc has not deleted from the change feed. A damaged row raises UnreadableRow. With
        ``unreadable``, the row is left out, and that function gets the error.
        """
        return self._book.audit(clean_lease(name), unreadable)


def _clean_times(ttl: float, timeout: float, renew_every: float | None) -> tuple[float, float]:
    """Check the times, and return the ttl and the timeout."""
    if (ttl := positive_seconds(ttl, "a ttl")) < _SHORTEST:
        raise InvalidArgument(f"a ttl of {ttl} s would end before the answer comes; use at least {_SHORTEST} s")
    if timeout != 0 or isinstance(timeout, bool):
        timeout = positive_seconds(timeout, "a timeout, unless it is 0,")
    if renew_every is not None and positive_seconds(renew_every, "renew_every") >= ttl / _SHARE:
        raise InvalidArgument(
            f"renew_every ({renew_every} s) must be less than a third of the ttl ({ttl} s), so that a renewal or "
            "two may fail; renew more often, or take a longer ttl"
        )
    return ttl, timeout


def clean_lease(name: object) -> str:
    """Return a lease's name in its normal form, or raise InvalidArgument."""
    try:
        return clean_name(name)
    except InvalidArgument as error:
        raise InvalidArgument(f"a lease needs a name: {error}") from None


def clean_owner(owner: object) -> str:
    """Return an owner's name in its normal form; for None, this machine and process. Raises InvalidArgument."""
    if owner is None:
        return f"{socket.gethostname()}:{os.getpid()}"
    try:
        return clean_name(owner)
    except InvalidArgument as error:
        raise InvalidArgument(f"an owner needs a name: {error}") from None
