"""The book of leases as objects with conditional writes: one lock file per name, changed by compare-and-swap.

Acquiring takes one read and one write; renewing or releasing takes one write, unless another process wrote meanwhile.
Lock files are never deleted, so tokens never decrease. To fence a store's commits, the book notes the token in the
store (``notes``) after the lock file names the holder and before the caller gets the lease. It notes the next token
when the lease is released or broken. The lock file decides: a process that it no longer names notes no token and gets
no lease. If the store has noted greater tokens, because the lock file was removed, the lock file gets a still greater
one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from metastore.clock import Clock
from metastore.deadlines import remaining
from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds.entity import utc
from metastore.leases.book import Grant, Holder, LeaseEvent, Queue, Refusal, Want
from metastore.leases.objects.cells import Cells, Done
from metastore.leases.objects.client import Objects
from metastore.leases.objects.format import Format
from metastore.leases.objects.lock_file import Holding, LockFile
from metastore.leases.objects.notes import Notes
from metastore.leases.objects.place import another_place
from metastore.leases.objects.queue import ObjectQueue
from metastore.leases.objects.tickets import Tickets
from metastore.leases.objects.watch import Watch
from metastore.port.unreadable import Unreadable

__all__ = ["ObjectBook"]

_log = logging.getLogger("metastore")

_MICROS = 1_000_000
_DEADLINE = 30.0
_GRACE = 5.0
"""How long to try to release leases that were taken in vain (seconds)."""


class _Unfenced(NamedTuple):
    """A version of a lock file whose tokens an older program may have noted, under another name."""

    nonce: str


class ObjectBook:
    """A book (:class:`metastore.leases.book.Book`) of lock files."""

    def __init__(
        self, objects: Objects, form: Format, place: str, clock: Clock, max_drift: float, notes: Notes | None = None
    ) -> None:
        """Keep lock files in ``objects``. ``place``: their URL, without secrets, for messages."""
        self._form, self._place, self._clock, self._notes = form, place, clock, notes
        self._watch = Watch(clock, max_drift)
        self._cells = Cells(objects, form, place, clock, self._watch.note)
        self._tickets = Tickets(objects, form, place, clock, self._watch)

    def _ends(self, default: float = _DEADLINE) -> float:
        return self._clock.monotonic() + remaining(self._clock, default)

    # --- acquiring

    def take(self, want: Want) -> tuple[Grant, ...] | Refusal:
        ends = self._ends(min(want.ttl, _DEADLINE))
        for name in want.names:
            self._form.key(name)
            if self._notes is not None:
                self._notes.check(name)
        if len(want.names) > 1:  # read all first, because taking a lease and releasing it again disturbs others
            for name in want.names:
                refusal = self._held(name, self._cells.glance(name, ends)) or self._waited_for(name, want, ends)
                if refusal is not None:
                    return refusal
        grants: list[Grant] = []
        try:
            for name in want.names:
                answer = self._take(name, want, ends)
                if isinstance(answer, Refusal):
                    self._give_back(grants, want.incarnation)
                    return answer
                grants.append(answer)
        except BaseException:
            self._give_back(grants, want.incarnation)
            raise
        return tuple(grants)

    def _take(self, name: str, want: Want, ends: float) -> Grant | Refusal:
        place = None if self._notes is None else self._notes.place(name, ends)
        ended: str | None = None
        looked = False

        def decide(
            file: LockFile | None, tried: AbstractSet[str], nonce: str
        ) -> LockFile | Done[LockFile | Refusal | _Unfenced]:
            nonlocal looked
            held = None if file is None else file.holding
            if file is not None and held is not None and held.id in tried:
                return Done(file)
            # read the queue once, and only if nobody holds the lease: later arrivals come after this call
            refusal = self._held(name, file) or (None if looked else self._waited_for(name, want, ends))
            if refusal is not None:
                return Done(refusal)
            looked = True
            if file is not None and self._is_unfenced(file, place) and file.nonce != ended:
                return Done(_Unfenced(file.nonce))
            now, ttl = self._clock.micros(), round(want.ttl * _MICROS)
            holding = Holding(nonce, want.owner, want.incarnation, ttl, now, now + ttl)
            taken = (file or LockFile(name, 0, "")).taken(holding, "acquire" if held is None else "takeover")
            return replace(taken, place=place or taken.place)

        while isinstance(answer := self._cells.change(name, decide, ends), _Unfenced):
            self._end_older(name)
            ended = answer.nonce
        return answer if isinstance(answer, Refusal) else self._fenced(answer, ends)

    def _is_unfenced(self, file: LockFile, place: str | None) -> bool:
        """Whether an older program may have noted the file's token. Raises BackendUnavailable for a foreign file."""
        if place is None or file.place == place:
            return False
        if file.place is not None:
            raise another_place(f"{self._place}/{self._form.key(file.name)}", file.place, place)
        return True

    def _end_older(self, name: str) -> None:
        if self._notes is not None:
            self._notes.end_older(name)

    def _held(self, name: str, file: LockFile | None) -> Refusal | None:
        """Return a refusal if another process holds the lease."""
        held = None if file is None else file.holding
        if held is not None and not self._cells.abandoned(held.id) and (left := self._watch.left(name, held)) > 0:
            return Refusal(name, held.owner, utc(held.expires_at), left)
        return None

    def _waited_for(self, name: str, want: Want, ends: float) -> Refusal | None:
        """Return a refusal if others have waited for the lease for longer."""
        if any(want.ticket is None or waiter.ticket < want.ticket for waiter in self._tickets.waiting(name, ends)):
            return Refusal(name, None, None, 0.0)
        return None

    def _grant(self, file: LockFile) -> Grant:
        held = file.holding
        assert held is not None
        return Grant(file.name, file.token if self._form.own else None, utc(held.expires_at), None, held.id)

    def _fenced(self, file: LockFile, ends: float) -> Grant | Refusal:
        """Note the token in the store, and return the grant. Refuse if the lock file no longer names this holder."""
        if self._notes is None:
            return self._grant(file)
        held = file.holding
        assert held is not None
        now: LockFile | None = file
        try:
            while now is not None:
                fence = self._notes.note(file.name, now.token, held, ends)
                if fence is not None:
                    return self._grant(now)._replace(fence=fence)
                now = self._raised(file.name, held.id, self._notes.noted(file.name, ends), ends)
        except BaseException:
            self._give_back([self._grant(file)], held.incarnation)
            raise
        return Refusal(file.name, None, None, 0.0)

    def _raised(self, name: str, mark: str, noted: int, ends: float) -> LockFile | None:
        """Return the lock file with a token above the noted one; None if this holder no longer has the lease."""

        def decide(file: LockFile | None, _: AbstractSet[str], nonce: str) -> LockFile | Done[LockFile | None]:
            if file is None or file.holding is None or file.holding.id != mark:
                return Done(None)
            return Done(file) if file.token > noted else file.raised(nonce, noted + 1)

        return self._cells.change(name, decide, ends)

    def _give_back(self, grants: Sequence[Grant], incarnation: str) -> None:
        for grant in grants:
            try:
                self._release(grant, incarnation, self._clock.monotonic() + _GRACE)
            except MetastoreError as error:
                self._cells.abandon({grant.mark})
                _log.warning("the lease %r was taken in vain, and expires with its ttl: %s", grant.name, error)

    # --- renew, release, break

    def renew(self, grants: Sequence[Grant], incarnation: str, ttl: float) -> datetime | None:
        ends, until = self._ends(min(ttl, _DEADLINE)), []
        for grant in grants:
            expires_at = self._renew(grant, round(ttl * _MICROS), ends)
            if expires_at is None:
                return None
            until.append(expires_at)
        return utc(min(until))

    def _renew(self, grant: Grant, ttl: int, ends: float) -> int | None:
        def decide(file: LockFile | None, tried: AbstractSet[str], nonce: str) -> LockFile | Done[LockFile | None]:
            if file is None or file.holding is None or file.holding.id != grant.mark:
                return Done(None)
            return Done(file) if file.nonce in tried else file.renewed(nonce, ttl, self._clock.micros())

        file = self._cells.change(grant.name, decide, ends)
        return None if file is None or file.holding is None else file.holding.expires_at

    def release(self, grants: Sequence[Grant], incarnation: str) -> bool:
        ends, given_back, errors = self._ends(), False, []
        for grant in grants:
            try:
                given_back |= self._release(grant, incarnation, ends)
            except MetastoreError as error:  # raised after the other leases are released
                errors.append(error)
        if errors:
            raise errors[0]
        return given_back

    def _release(self, grant: Grant, incarnation: str, ends: float) -> bool:
        following = None if grant.fence is None else grant.fence.token + 1

        def decide(file: LockFile | None, tried: AbstractSet[str], nonce: str) -> LockFile | Done[bool]:
            if file is not None and file.holding is not None and file.holding.id == grant.mark:
                return file.freed(nonce, "release", self._clock.micros())
            return Done(file is not None and (file.bears(tried) or self._was_released(file, following)))

        if self._cells.change(grant.name, decide, ends) is False:
            return False
        if self._notes is not None and following is not None:  # make all earlier tokens invalid in the store
            self._notes.end(grant.name, following, ends)
        return True

    def _was_released(self, file: LockFile, following: int | None) -> bool:
        """Whether an earlier call released the lease, but perhaps failed before it noted that in the store."""
        if not self._form.own:
            return file.holding is None and file.token == following
        return any(past.action == "release" and past.token == following for past in file.history)

    def break_(self, name: str) -> bool:
        ends = self._ends()
        while True:
            file = self._cells.glance(name, ends)
            if self._notes is not None and file is not None:
                if self._is_unfenced(file, self._notes.place(name, ends)):
                    self._end_older(name)
                if file.holding is not None and not self._form.own:  # a Hudi writer may have left the token out
                    self._notes.end_all(name, ends)
            broken = self._break(name, file, ends)
            if broken is None:
                continue
            if self._notes is not None and broken[1]:  # even if an earlier call, whose answer was lost, broke the lease
                self._notes.end(name, broken[1], ends)
            return broken[0]

    def _break(self, name: str, lock: LockFile | None, ends: float) -> tuple[bool, int] | None:
        """Return whether the lease was broken, and its token afterwards; None: the lease has another holder by now."""
        whose = None if lock is None or lock.holding is None else lock.holding.id

        def decide(
            file: LockFile | None, tried: AbstractSet[str], nonce: str
        ) -> LockFile | Done[tuple[bool, int] | None]:
            if file is None:
                return Done((False, 0))
            if file.holding is None or file.bears(tried):
                return Done((file.bears(tried), file.token))
            if file.holding.id != whose:
                return Done(None)
            return file.freed(nonce, "break", self._clock.micros())

        answer = self._cells.change(name, decide, ends)
        return (True, answer.token) if isinstance(answer, LockFile) else answer

    # --- looking

    def holders(
        self, names: Sequence[str] | None = None, unreadable: Callable[[MetastoreError], object] | None = None
    ) -> Iterator[Holder]:
        if names is not None:
            for name in names:
                file = self._cells.read(name, self._ends())
                if file is not None and file.holding is not None:
                    yield self._holder(file, len(self._tickets.waiting(name, self._ends())))
            return
        if not self._form.own:
            raise InvalidArgument(
                "Hudi keeps its lock files in the folders of tables, so a search would list the whole lake; "
                "ask for one table: holder(name)"
            )
        keys = self._cells.keys(self._ends())
        files = self._cells.all(keys, self._ends(), unreadable)
        held = [self._holder(f, len(self._tickets.among(f.name, keys))) for f in files if f.holding is not None]
        yield from sorted(held, key=lambda holder: holder.name)

    def _holder(self, file: LockFile, waiting: int = 0) -> Holder:
        held = file.holding
        assert held is not None
        expired = self._watch.left(file.name, held) <= 0
        token = file.token if self._form.own else None
        who, times = (held.owner, held.incarnation), (utc(held.acquired_at), utc(held.expires_at))
        return Holder(file.name, token, *who, *times, expired, waiting)

    def granted(self, name: str, token: int) -> tuple[Grant, Holder] | None:
        file = self._cells.read(name, self._ends())
        if file is None or file.holding is None or not self._form.own or file.token != token:
            return None
        grant, holder = self._grant(file), self._holder(file)
        if self._notes is not None:
            fence = self._notes.note(name, token, file.holding, self._ends())
            if fence is None:
                return None
            grant = grant._replace(fence=fence)
        return grant, holder

    def audit(self, name: str, unreadable: Unreadable | None = None) -> Iterator[LeaseEvent]:
        if not self._form.own:
            raise InvalidArgument("Hudi's lock files keep no history; format='metastore' does")
        file = self._cells.read(name, self._ends())
        for past in () if file is None else file.history:
            yield LeaseEvent(past.action, past.token, utc(past.time), past.owner, past.incarnation)

    # --- waiting

    def queue(self, want: Want, ends: float = math.inf) -> AbstractContextManager[Queue]:
        return ObjectQueue(self._tickets, self._clock, want, ends, self._form.own)
