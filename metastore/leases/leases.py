"""Acquiring leases, in the order of arrival; what is the same whatever keeps them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

from metastore.arguments import items, positive_integer, positive_seconds, shown
from metastore.clock import Clock
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded, InvalidArgument, LeaseHeld, LeaseLost
from metastore.leases.book import Book, Grant, Holder, LeaseEvent, Queue, Refusal, Want
from metastore.leases.lease import Hold, Lease, LeaseSet, OnLost, Staging
from metastore.leases.validity import Instant
from metastore.names import clean_name

__all__ = ["Leases"]

H = TypeVar("H", bound=Hold)

_SHARE = 3
"""A renewal must come at least this often within the ttl: two of them may be lost."""
_SHORTEST = 0.01
"""The shortest ttl (seconds): a shorter one would be over before its answer."""
_LAST_LOOK = 1.0
"""How long an attempt may take at the end of the timeout (seconds)."""


class Leases:
    """Leases by name, each with one holder at a time. Thread-safe.

    A name is any string that an entity's name may be (1 to 255 code points). A *holder* is an owner in one
    incarnation: what opened the store, in one process; and in that one thread.
    """

    def __init__(self, book: Book, clock: Clock, deadline: float = 30.0, staging: Staging | None = None) -> None:
        self._book, self._clock, self._deadline, self._staging = book, clock, deadline, staging
        self._lock = threading.Lock()
        self._be_new()

    def _be_new(self) -> None:
        self._pid = os.getpid()
        self._incarnation = str(self._clock.operation_id())
        self._held: dict[tuple[tuple[str, ...], str, threading.Thread], Hold] = {}

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

        In the ``with`` block it is renewed every ``renew_every`` seconds (a quarter of the ttl, if that is None), and
        released at its end. Without ``with`` it is renewed from the start if ``renew_every`` is given, else by
        ``lease.renew()``. Renewing ends with the thread that acquired it.

        ``ttl``: how long it lasts without being renewed. ``timeout``: how long to wait for it, behind whoever waits
        already; 0: try once. ``owner``: who others are told has it (this machine and process). ``on_lost`` is called
        with the lease when it is found to be lost. All times are in seconds.

        The same owner, in the same thread, gets the lease that it has once more, renewed; ``with`` blocks nest then.

        Raises LeaseHeld (who has it, until when); BackendUnavailable, DeadlineExceeded, OutcomeUnknown if the
        database did not answer: then it is not acquired; LeaseLost if it answered when the ttl was over. Raises
        InvalidArgument.
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

        Nothing is held while one waits, so that no two callers wait for each other.
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
        if (ttl := positive_seconds(ttl, "a ttl")) < _SHORTEST:
            raise InvalidArgument(f"a ttl of {ttl} s would be over before its answer; take {_SHORTEST} s at least")
        if timeout != 0 or isinstance(timeout, bool):
            timeout = positive_seconds(timeout, "a timeout, unless it is 0,")
        if renew_every is not None and positive_seconds(renew_every, "renew_every") >= ttl / _SHARE:
            raise InvalidArgument(
                f"renew_every ({renew_every} s) must be less than a third of the ttl ({ttl} s), so that a renewal or "
                "two may fail; renew more often, or take a longer ttl"
            )
        if on_lost is not None and not callable(on_lost):
            raise InvalidArgument(f"on_lost is a function, not {shown(on_lost)}")
        owner = clean_owner(owner)
        if os.getpid() != self._pid:  # a forked child is another holder
            self._lock = threading.Lock()
            self._be_new()
        key = (names, owner, threading.current_thread())
        with self._lock:
            held = self._held.get(key)
        if isinstance(held, cls) and held.again(ttl, renew_every, on_lost):
            return held
        want = Want(names, owner, self._incarnation, ttl)
        grants, since = self._wait_for(want, timeout)
        hold = cls(
            self._book,
            self._clock,
            grants,
            owner,
            self._incarnation,
            ttl,
            since,
            renew_every,
            self._staging,
        )
        try:
            hold.check()  # the answer may have come after its time
            hold.watch(on_lost)
            if renew_every is not None:
                hold.keep()
        except BaseException:
            hold.end()
            raise
        over = [k for k, h in list(self._held.items()) if h.is_over()]  # which may call on_lost: not under the lock
        with self._lock:
            for k in over:
                self._held.pop(k, None)
            self._held[key] = hold
        return hold

    def _wait_for(self, want: Want, timeout: float) -> tuple[tuple[Grant, ...], Instant]:
        ends = self._clock.monotonic() + timeout
        answer, since = self._take(want, max(timeout, min(self._deadline, want.ttl)))
        if isinstance(answer, Refusal) and timeout > 0:
            with self._book.queue(want) as queue:
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
                break  # who has it is known from before
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

    # --- what is held

    def renew(self, lease: Hold) -> None:
        """Let a lease last for its ttl from now on. Raises LeaseLost; BackendUnavailable, DeadlineExceeded."""
        self._mine(lease).renew()

    def release(self, lease: Hold) -> bool:
        """Give a lease back. False: it was given back before, or is somebody else's. May be repeated."""
        return self._mine(lease).release()

    def _mine(self, lease: object) -> Hold:
        if not isinstance(lease, Hold):
            raise InvalidArgument(f"a lease is what acquire returned, not {shown(lease)}")
        return lease

    def join(self, name: str, token: int) -> Lease:
        """Return the lease that a process above this one holds and renews, to commit under its token.

        ``metastore lease run NAME -- COMMAND`` tells the command both, in METASTORE_LEASE and METASTORE_LEASE_TOKEN.
        It is neither renewed nor released here. Raises LeaseLost if it has another token by now.
        """
        name, token = clean_lease(name), positive_integer(token, "a token")
        found = self._book.granted(name, token)
        if found is None or found[1].expired:
            raise LeaseLost(name, token)
        grant, holder = found
        ttl = (holder.expires_at - holder.acquired_at).total_seconds()
        return Lease(
            self._book,
            self._clock,
            (grant,),
            holder.owner,
            holder.incarnation,
            ttl,
            None,
            None,
            self._staging,
        )

    def close(self) -> None:
        """Give back what this process holds and renews. What it does not renew lasts for its ttl."""
        if os.getpid() == self._pid:
            for hold in list(self._held.values()):
                hold.closed()

    # --- looking, and breaking

    def holder(self, name: str) -> Holder | None:
        """Return who holds a lease; None: nobody does, or its time is over."""
        found = next(iter(self._book.holders((clean_lease(name),))), None)
        return None if found is None or found.expired else found

    def list(self) -> Iterator[Holder]:
        """Yield who holds which lease, by name; those whose time is over but that nobody took over are ``expired``."""
        return self._book.holders()

    def break_(self, name: str) -> bool:
        """Take a lease away from its holder, whose commits under it fail from now on. False: nobody holds it."""
        return self._book.break_(clean_lease(name))

    def audit(self, name: str) -> Iterator[LeaseEvent]:
        """Yield who acquired, took over, released and broke a lease, and what was committed under it, oldest first.

        It reaches back as far as gc has left the change feed.
        """
        return self._book.audit(clean_lease(name))


def clean_lease(name: object) -> str:
    """Return a lease's name in its normal form, or raise InvalidArgument."""
    try:
        return clean_name(name)
    except InvalidArgument as error:
        raise InvalidArgument(f"a lease needs a name: {error}") from None


def clean_owner(owner: object) -> str:
    """Return an owner's name; None is this machine and process."""
    if owner is None:
        return f"{socket.gethostname()}:{os.getpid()}"
    try:
        return clean_name(owner)
    except InvalidArgument as error:
        raise InvalidArgument(f"an owner needs a name: {error}") from None
