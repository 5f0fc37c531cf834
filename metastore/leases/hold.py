"""The holder's side of a lease, or of several leases that were acquired together.

A lease belongs to the process that acquired it: after a fork, the child holds nothing. The lease ends when its time is
over by the holder's clocks, when it is taken over or broken, or when it is released. Then :attr:`Hold.lost` is set, and
every commit under it raises LeaseLost. This early warning saves work; safety comes from the token, which the commit
itself checks.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from metastore.clock import Alive, Clock
from metastore.deadlines import GRACE, cleaning, until
from metastore.errors import InvalidArgument, LeaseLost, MetastoreError, StoreClosed
from metastore.kinds.entity import Entity
from metastore.leases.book import Book, Grant, Want
from metastore.leases.heartbeat import Heartbeat, Lost
from metastore.leases.validity import Instant, Validity
from metastore.port.conditions import LeaseToken

__all__ = ["Hold", "OnLost", "Staging"]

_log = logging.getLogger("metastore")
_PATIENCE = 1.0
"""How long a release waits for a renewal in flight (seconds)."""

_LAST_TRY = 1.0
"""How long to try to release a lease, at least (seconds)."""

OnLost = Callable[[Any], None]
"""A function that is called once, with the lease, in the thread that notices the loss."""


class Staging(Protocol):
    """Keeps values that were staged under a lease until they are published."""

    def stage(self, token: LeaseToken, entity: Entity, key: str, value: str) -> bool:
        """Stage one value. Return False if the lease has another token."""

    def publish(self, hold: Hold, changes: object, only: object) -> tuple[Entity, ...]:
        """Make the staged values visible, in one commit under the lease."""


class Hold:
    """One or several leases of one holder. As a context manager, it renews them, and releases them at the end."""

    def __init__(
        self,
        book: Book,
        clock: Clock,
        grants: Sequence[Grant],
        want: Want,
        since: Instant | None,
        *,
        renew_every: float | None = None,
        staging: Staging | None = None,
        deadline: float = math.inf,
    ) -> None:
        """Hold ``grants``, for which ``want`` asked.

        ``since``: the time before the request; None: a parent process renews.

        ``renew_every`` is in seconds; None: a quarter of the ttl. ``deadline``: how long a release may take (seconds).
        """
        ttl = want.ttl
        self._book, self.clock, self._staging, self._deadline = book, clock, staging, deadline
        self._grants = tuple(grants)
        self.owner, self.incarnation = want.owner, want.incarnation
        self._ttl = ttl
        self._validity = None if since is None else Validity(clock, ttl, since)
        self._expires_at = min(grant.expires_at for grant in grants)
        # the ttl of the renewal that the book applied last, and when its answer came
        self._last, self._answered = ttl, clock.monotonic()
        self._heart = Heartbeat(self, ttl / 4 if renew_every is None else renew_every)
        self._on_lost: OnLost | None = None
        self.lost: threading.Event = Lost(self)
        """Set when the lease is lost. Check it, or wait for it, between the steps of long work."""
        self._why = ""
        self._released = self._given_back = False
        self._pid = os.getpid()
        self._guard = threading.Lock()  # guards the next three attributes, and the ends that a renewal notes
        self._told = False
        self._claims = 1  # how many acquisitions are not released yet
        self._blocks: list[Alive] = []  # for each open ``with`` block, the thread or task that entered it

    # --- the state of the hold

    @property
    def expires_at(self) -> datetime:
        """The time when it expires by the book's clock, unless it is renewed (UTC)."""
        return self._expires_at

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the leases."""
        return tuple([grant.name for grant in self._grants])

    def tokens(self) -> tuple[LeaseToken, ...]:
        """Return the tokens that a commit must require. Raises LeaseLost; InvalidArgument if no store checks them."""
        self.check()
        fences = [grant.fence for grant in self._grants]
        if None in fences:
            raise InvalidArgument(
                f"no store checks the token of the lease {self.names[0]!r}, so the lease cannot guard a commit; "
                "open the leases with the store: ms.ObjectStoreLeases(…, store=store)"
            )
        return tuple([fence for fence in fences if fence is not None])

    def check(self) -> None:
        """Raise LeaseLost if the lease is known to be lost, is over, was released, or belongs to another process.

        This sends no request.
        """
        if os.getpid() != self._pid:
            raise self._error("it belongs to the process that acquired it, not to its child")
        if self._released:
            raise self._error("it was released, or its store was closed")
        if self.lost.is_set():
            raise self._error(self._why)

    def is_over(self) -> bool:
        """Return whether :meth:`check` would raise."""
        try:
            self.check()
        except LeaseLost:
            return True
        return False

    def seconds_left(self) -> float:
        """Return the seconds that are left by the holder's clocks. If the time is over, note the loss.

        A joined lease always has its whole ttl left, because this process does not see the renewals. A released lease
        has infinitely many seconds left, a forked child none.
        """
        if os.getpid() != self._pid:
            return 0.0
        if self._released:
            return math.inf
        left = self._left()
        if left <= 0:
            self.lose("its time was over before it was renewed")
        return left

    def refused(self) -> MetastoreError:
        """Return the error for a commit that did not find the token: the lease is lost, or another store keeps it."""
        with suppress(MetastoreError):
            granted = [self._book.granted(g.name, g.token) for g in self._grants if g.token is not None]
            if granted and all(g is not None and g[1].incarnation == self.incarnation for g in granted):
                return InvalidArgument(
                    f"this store does not know the token of the lease {self.names[0]!r}, which is kept elsewhere; "
                    "acquire it from this store's leases. If a fail-over lost the token of a lease in a bucket, call "
                    "again: it is noted again"
                )
        return self.lose("it has another token by now: another caller took it over, or broke it")

    def lose(self, why: str) -> LeaseLost:
        """Note that the lease is lost, call ``on_lost`` once, and return the error to raise."""
        with self._guard:
            told, self._told = self._told, True
            if not told:
                self._why = why
        self.lost.set()
        self._heart.stop()
        if not told and self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:  # noqa: BLE001  (the loss must be reported all the same)
                _log.exception("on_lost of the lease %r raised", self.names[0])
        return self._error(self._why)

    def _error(self, why: str) -> LeaseLost:
        name, token = ", ".join(self.names), self._grants[0].token
        number = "" if token is None or len(self._grants) > 1 else f" (token {token})"
        again = "stop its work, and acquire it again"
        return LeaseLost(name, token, f"the lease {name!r}{number} is lost: {why}; {again}")

    # --- renew and release

    def renew(self) -> None:
        """Renew the lease for its ttl from now. Raises LeaseLost.

        After another error the holder relies on the old end; other processes may have to wait until the new end.
        """
        self.check()
        if self._validity is None:
            raise InvalidArgument("only the process that acquired the lease can renew it; this process joined it")
        # the ttl is read once: another thread may acquire the lease for longer meanwhile
        since, ttl = Instant.now(self.clock), self._ttl
        expires_at = self._book.renew(self._grants, self.incarnation, ttl)
        if expires_at is None:
            self.check()  # raises the right error if another thread has released the lease meanwhile
            raise self.lose("another caller has taken it over, or broke it")
        is_left_out = not self._note(expires_at, Validity(self.clock, ttl, since))
        self.check()  # raises if the answer came after the lease had ended
        # renew again if the database applied a shorter renewal after this one (is_left_out), or if another thread has
        # acquired the lease for longer, because this shorter renewal may have come after the longer one
        if is_left_out or ttl < self._ttl:
            self.renew()

    def _note(self, expires_at: datetime, renewed: Validity) -> bool:
        """Note the end that the holder may rely on. Return False if the database set an earlier end after ``renewed``.

        The database has the end of the renewal that it applied last. If two renewals were in flight at once, the ends
        that it returned show which one that is.
        """
        with self._guard:
            known, ttl = self._validity, renewed.ttl
            assert known is not None
            between = timedelta(seconds=ttl - self._last)
            later = renewed.since.monotonic >= self._answered or expires_at - self._expires_at >= between
            if ttl > self._last and not later:
                return False
            if later:
                self._expires_at, self._last, self._answered = expires_at, ttl, self.clock.monotonic()
            # keep the longer of two renewals; but a later, shorter renewal has shortened the lease
            if (later and ttl < known.ttl) or renewed.left() > known.left():
                self._validity = renewed
            return True

    def keep(self) -> None:
        """Start to renew the lease, until it is released, or the holder's thread ends."""
        if self._validity is not None:
            self._heart.keep()

    def _look_again(self) -> None:
        """Renew the lease now, if it is renewed at all: another server answers now, which may lack the lease."""
        self._heart.now()

    def watch(self, on_lost: OnLost | None) -> None:
        """Call ``on_lost``, unless it is None, as soon as the lease is lost."""
        self._on_lost = on_lost or self._on_lost
        if self._on_lost is not None:
            self._heart.watch()

    def _left(self) -> float:
        return self._ttl if self._validity is None else self._validity.left()

    def release(self) -> bool:
        """Release the lease. Return False if it was released before, is lost, or a parent process holds it.

        The call may be repeated.
        """
        if os.getpid() != self._pid or self._given_back or self._validity is None:
            return False
        self._released = True
        self._heart.stop(_PATIENCE)
        now = self.clock.monotonic()
        try:
            # try no longer than the lease lasts: after that, it has expired anyway
            with until(now + min(max(self._left(), _LAST_TRY), self._deadline)):
                given_back = self._book.release(self._grants, self.incarnation)
        except StoreClosed:
            given_back = False  # stays False for a store in memory, whose leases ended with it
            with cleaning(now + _LAST_TRY), suppress(StoreClosed):
                given_back = self._book.release(self._grants, self.incarnation)
        self._given_back = True  # set last: after an error the release can be tried again
        return given_back

    def end(self) -> None:
        """Stop the renewals, and release the lease if the book answers at once; otherwise it expires."""
        with until(self.clock.monotonic() + _LAST_TRY), suppress(MetastoreError):
            self.release()
        self._leave()
        self._given_back = True

    def closed(self) -> None:
        """End the hold because its store closes: release it if it is renewed; otherwise it lasts for its ttl."""
        if self._heart.beating is not None:
            self.end()
        self._leave()

    def _leave(self) -> None:
        if os.getpid() == self._pid:
            self._released = True
            self._heart.stop()

    def again(self, ttl: float, renew_every: float | None, on_lost: OnLost | None) -> bool:
        """Grant the lease to its holder again, for at least ``ttl`` seconds from now. Return False if it has ended."""
        if self.is_over():
            return False
        self._ttl = max(self._ttl, ttl)  # an outer block may rely on the longer ttl
        try:
            self.renew()
        except LeaseLost:
            return False
        with self._guard:
            if not self._claims:  # the last block has ended meanwhile in another thread, which releases the lease
                return False
            self._claims += 1
        self.watch(on_lost)
        if renew_every is not None:
            self._heart.sooner(renew_every)
            self.keep()
        return True

    def __enter__(self) -> Self:
        try:
            self.check()
            keeper = self._heart.keep() if self._validity is not None else self.clock.runner()
            with self._guard:
                self._blocks.append(keeper)
                self._claims = max(self._claims, len(self._blocks))
        except BaseException:
            if not self.lost.is_set():  # release the lease: no block will do it
                with suppress(MetastoreError):
                    self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:  # the first line: an interrupt before it leaves the lease held (docs/leases.md)
            if self._leave_block():
                self.release()
        except MetastoreError as failed:  # the block's work is done, so only log this
            _log.warning("the lease %r was not released, and expires with its ttl: %s", self.names[0], failed)
        except BaseException:
            # an interrupt, or a cancelled task: release the lease, for outer blocks too. Which block was left is
            # perhaps not noted, and then nobody would release the lease, while the heartbeat renews it
            with cleaning(self.clock.monotonic() + GRACE), suppress(MetastoreError):
                self.release()
            raise

    def _leave_block(self) -> bool:
        """Note that a block ends. Return whether it was the last one."""
        if os.getpid() != self._pid:
            return False  # a forked child holds nothing, and a thread of the parent may have held the lock
        with self._guard:
            me = self.clock.runner()
            # a block may end in another thread or task than it began in
            keeper = me if me in self._blocks else self._blocks[-1]
            self._blocks.remove(keeper)
            self._claims -= 1
            is_last = not self._claims
        self._heart.leave(keeper)
        return is_last

    # --- work outside the store

    def stage(self, entity: Entity, key: str, value: str) -> None:
        """Stage a value for ``entity``. No reader sees it before :meth:`publish`.

        For example ``lease.stage(table, "metadata_location", "s3://…/v7.json")``. It becomes the property ``key``. If
        the key is staged again, the newer value replaces the older one. No reader ever sees a value that a late holder
        stages; ``store.gc(clean_up=…)`` hands it over for removal. Raises LeaseLost; InvalidArgument, also for a value
        that gc is cleaning up at this moment. After BackendUnavailable or DeadlineExceeded the value may be staged:
        stage it again, or another value for the key, before you publish.
        """
        if not self._staged().stage(self.tokens()[0], entity, key, value):
            raise self.lose("it has another token by now: another caller took it over, or broke it")

    def publish(self, changes: object = (), *, only: Iterable[Entity] | None = None) -> tuple[Entity, ...]:
        """Make all staged values visible, in one commit that requires the token; return the entities.

        Each staged value becomes a property of its entity. ``changes`` are made in the same commit: one or several
        changes of the only entity with staged values, a mapping from entities to changes, or a function that gets the
        transaction. ``only``: publish the values of these entities, and leave the rest staged. Raises LeaseLost,
        EntityNotFound for an entity that does not exist any more, DropPending for one that is being dropped in steps,
        and the errors of the changes. Then nothing is published, and everything stays staged.
        """
        return self._staged().publish(self, changes, only)

    def _staged(self) -> Staging:
        if self._staging is None:
            raise InvalidArgument("these leases have no store to stage work in; acquire the lease with store.leases")
        return self._staging

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease cannot be pickled: it belongs to the process that acquired it")
