"""The book of leases in the store's own database: one row for each name, with compare-and-swap in one round trip.

Acquire, release and break are operations: each has an id, and an event in the change feed. If the answer to an
acquisition is lost, the id settles the outcome before the call returns. Releases and renewals require their token, so
they can be sent again.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from metastore.deadlines import cleaning, remaining, until
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    MetastoreError,
    OutcomeUnknown,
    RetriesExhausted,
    UnreadableRow,
    outcome_forgotten,
)
from metastore.feed.feed import position_of
from metastore.kinds.change import decode
from metastore.kinds.entity import utc
from metastore.leases.book import Grant, Holder, LeaseEvent, Queue, Refusal, Want
from metastore.leases.changes import LeaseHolder
from metastore.managers.history import steps_of
from metastore.names import format_path
from metastore.operation.record import ask_until_it_answers
from metastore.operation.session import Session
from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import LeaseToken
from metastore.port.leases import Fenced, LeaseRow, Mirror, Take, Taken, Waker
from metastore.port.note import read_note
from metastore.port.records import Step
from metastore.port.unreadable import Unreadable, check_unreadable, naming, reason, told
from metastore.retry.runner import Conflict, Effort, run

__all__ = ["DatabaseBook"]

T = TypeVar("T")
_PAGE = 500
_MICROS = 1_000_000
_GRACE = 1.0
"""How long to try to leave a queue (seconds). A waiter that cannot leave counts as dead soon after."""


class DatabaseBook:
    """A book (:class:`metastore.leases.book.Book`) in the database."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows = session.backend.leases

    def _settled(self, what: str, attempt: Callable[[], T]) -> T:
        """Return the result of an attempt. While the database is unavailable, try again, until the call's deadline."""
        session = self._session
        left = max(remaining(session.clock, session.policy.deadline), 0.001)
        ends = session.clock.monotonic() + left

        def once(_: int) -> T:
            try:
                with until(ends):
                    return attempt()
            except BackendUnavailable as error:
                if not error.transient:
                    raise
                raise Conflict("unavailable", str(error)) from error

        effort = Effort(replace(session.policy, deadline=left), session.clock, session.bucket, lambda: what)
        try:
            return run(once, effort)
        except MetastoreError as error:
            if isinstance(error.__cause__, Conflict) and isinstance(error.__cause__.__cause__, BackendUnavailable):
                raise error.__cause__.__cause__ from None
            raise

    # --- acquiring

    def take(self, want: Want) -> tuple[Grant, ...] | Refusal:
        paths = tuple([_path(name) for name in want.names])
        ticket = None if want.ticket is None else int(want.ticket)
        ttl = round(want.ttl * _MICROS)
        session = self._session
        unheard: Take | None = None

        def attempt() -> tuple[Grant, ...] | Refusal:
            nonlocal unheard
            if unheard is not None:  # a second request would find the leases taken by the first
                return self._taken_unheard(unheard)
            operation_id = session.clock.operation_id()
            holder = (want.owner, want.incarnation)
            take = Take(operation_id, session.principal, want.names, paths, *holder, ttl, ticket)
            began = session.clock.monotonic()
            try:
                answer = self._rows.take(take)
            except Exception:
                raise
            except BaseException:  # an interrupt, so the caller will never learn of the lease
                self._untake(take, want.ttl)
                raise
            if isinstance(answer, Conflicted):
                raise Conflict(answer.cause, "other callers took some of the leases at the same moment")
            if isinstance(answer, Unknown):
                ends = session.clock.monotonic() + remaining(session.clock, session.policy.deadline)
                if ask_until_it_answers(session, operation_id, ends - began, ends) is not None:
                    raise Conflict("lost", f"the connection was lost before anything was taken ({answer.reason})")
                unheard = take
                return self._taken_unheard(take)
            return self._answered(want, answer)

        return self._settled(f"acquire {', '.join(want.names)}", attempt)

    def _answered(self, want: Want, answer: Taken) -> tuple[Grant, ...] | Refusal:
        if answer.rows:
            return tuple([_grant(row) for row in answer.rows])
        if answer.ahead is not None and answer.held is None:
            return Refusal(answer.ahead, None, None, 0.0)
        if answer.held is None:  # the snapshot shows no holder, so another caller has just taken the lease
            raise Conflict("lease", "another caller took the lease at the same moment", 0.0)
        expires_at = answer.held.expires_at or 0
        seconds = 0.0 if answer.ahead is not None else max((expires_at - answer.now) / _MICROS, 0.001)
        return Refusal(answer.held.name, answer.held.owner, utc(expires_at), seconds)

    def _untake(self, take: Take, life: float) -> None:
        """Make sure that an interrupted request holds nothing. If that fails, its leases expire with their ttl."""
        session = self._session
        with cleaning(session.clock.monotonic() + _GRACE), suppress(MetastoreError):
            if session.backend.forbid(take.operation_id, life) is None:
                self.release(self._taken_unheard(take), take.incarnation)

    def _taken_unheard(self, take: Take) -> tuple[Grant, ...]:
        """Return the grants of a statement whose answer was lost, as its events in the feed show them."""
        steps = self._session.backend.steps(take.operation_id)
        if len(steps) < len(take.names):
            raise outcome_forgotten(take.operation_id)
        return tuple(
            [
                Grant(name, step.version, utc(step.time + take.ttl), _token(name, step.entity_id, step.version, take))
                for name, step in zip(take.names, steps, strict=True)
            ]
        )

    # --- keeping, giving back, breaking

    def renew(self, grants: Sequence[Grant], incarnation: str, ttl: float) -> datetime | None:
        held = _tokens(grants)
        until_when = self._settled(f"renew {grants[0].name}", lambda: self._rows.renew(held, round(ttl * _MICROS)))
        return None if until_when is None else utc(until_when)

    def release(self, grants: Sequence[Grant], incarnation: str) -> bool:
        held, paths, by = _tokens(grants), [_path(grant.name) for grant in grants], self._session.principal
        return self._freed(f"release {grants[0].name}", lambda mine: self._rows.release(held, paths, mine, by))

    def break_(self, name: str) -> bool:
        by = self._session.principal
        return self._freed(f"break {name}", lambda mine: self._rows.break_(name, _path(name), mine, by))

    def _freed(self, what: str, send: Callable[[UUID], int | Conflicted | Unknown]) -> bool:
        """Free leases; ``send`` gets the operation's id. Raises OutcomeUnknown if the last answers were lost."""
        # one id for all attempts, so that a retry cannot break the next holder's lease
        operation_id, lost = self._session.clock.operation_id(), list[UUID]()

        def attempt() -> bool:
            answer = send(operation_id)
            if not answer and lost:  # ask again: a later snapshot shows the effect of an earlier sending
                answer = send(operation_id)
            if isinstance(answer, Conflicted):
                raise Conflict(answer.cause, "other callers changed the lease at the same moment")
            if isinstance(answer, Unknown):
                lost.append(operation_id)
                raise Conflict("lost", f"the answer was lost ({answer.reason})")
            return bool(answer)

        with _in_doubt(lost):
            return self._settled(what, attempt)

    # --- looking

    def holders(
        self, names: Sequence[str] | None = None, unreadable: Callable[[MetastoreError], object] | None = None
    ) -> Iterator[Holder]:
        after = ""
        while True:
            now, rows = self._page(names, after)
            yield from (_holder(row, now) for row in rows if row.owner is not None)
            if names is not None or len(rows) < _PAGE:
                return
            after = rows[-1].name

    def _page(self, names: Sequence[str] | None, after: str) -> tuple[int, list[LeaseRow]]:
        return self._settled("look at leases", lambda: self._rows.rows(names, after, _PAGE))

    def granted(self, name: str, token: int) -> tuple[Grant, Holder] | None:
        now, rows = self._page([name], "")
        held = [row for row in rows if row.token == token and row.owner is not None]
        return (_grant(held[0]), _holder(held[0], now)) if held else None

    def audit(self, name: str, unreadable: Unreadable | None = None) -> Iterator[LeaseEvent]:
        check_unreadable(unreadable)
        return self._audit(name, unreadable)

    def _audit(self, name: str, unreadable: Unreadable | None) -> Iterator[LeaseEvent]:
        _, rows = self._page([name], "")
        if not rows:
            return
        lease_id = rows[0].id
        epoch, _ = self._session.backend.feed_start()
        holders: dict[int, LeaseHolder] = {}
        both: Iterator[tuple[int, LeaseEvent | Fenced]] = heapq.merge(
            self._events(lease_id, epoch, unreadable), self._commits(lease_id), key=lambda pair: pair[0]
        )
        for seq, event in both:
            position = position_of(epoch, seq, event.operation_id)
            if isinstance(event, LeaseEvent):
                if event.action not in ("release", "break"):
                    holders[event.token] = LeaseHolder(event.owner, event.incarnation)
                yield replace(event, position=position)
                continue
            commit = told(partial(_commit, event, lease_id, holders, position), unreadable)
            if commit is not None:
                yield commit

    def _events(self, lease_id: int, epoch: str, unreadable: Unreadable | None) -> Iterator[tuple[int, LeaseEvent]]:
        for step in steps_of(self._session.backend.history, lease_id):
            position = position_of(epoch, step.seq or 0, step.operation_id)
            event = told(partial(_event, step, position), unreadable)
            if event is not None:
                yield step.seq or 0, event

    def _commits(self, lease_id: int) -> Iterator[tuple[int, Fenced]]:
        after = 0
        while True:
            rows = self._rows.fenced(lease_id, after, _PAGE)
            for row in rows:
                yield row.seq, row
            if len(rows) < _PAGE:
                return
            after = rows[-1].seq

    # --- waiting

    @contextmanager
    def queue(self, want: Want, ends: float = math.inf) -> Iterator[Queue]:
        ticket = self._settled("wait for a lease", lambda: self._rows.enter(want.names, want.owner))
        place: _Place | None = None
        try:
            with ExitStack() as stack:
                with until(ends):
                    waker = stack.enter_context(self._rows.waker(ticket, want.names))
                place = _Place(str(ticket), waker)
                yield place
        finally:
            if place is None or not place.was_served:
                clock = self._session.clock
                with cleaning(clock.monotonic() + _GRACE), suppress(MetastoreError):
                    self._rows.leave(ticket, want.names)

    # --- tokens of leases that are kept elsewhere

    def mirror(self, name: str, token: int | None, owner: str, incarnation: str) -> LeaseToken | None:
        """Note the token of a lease that another book keeps, so that commits in this store can require it.

        ``token`` None: the lease has no token, so this store assigns the next one. Return the token that commits
        require; None: a newer token is noted already. Raises OutcomeUnknown if no answer came.
        """
        session, lost = self._session, list[UUID]()

        def attempt() -> LeaseToken | None:
            operation_id = session.clock.operation_id()
            mirror = Mirror(operation_id, session.principal, name, _path(name), token, owner, incarnation)
            answer = self._rows.mirror(mirror)
            if isinstance(answer, Conflicted):
                raise Conflict(answer.cause, "another caller noted another token at the same moment")
            if isinstance(answer, Unknown):
                lost.append(operation_id)
                raise Conflict("lost", "the answer was lost")  # the next attempt finds the token noted, and returns it
            return answer

        with _in_doubt(lost):
            return self._settled(f"note the token of {name}", attempt)

    def noted(self, name: str) -> int:
        """Return the newest token of a name; 0: the name has no token."""
        _, rows = self._page([name], "")
        return rows[0].token if rows else 0

    def noted_for(self, name: str) -> str | None:
        """Return the incarnation for which the newest token of a name was noted."""
        _, rows = self._page([name], "")
        return rows[0].incarnation if rows else None


@contextmanager
def _in_doubt(lost: Sequence[UUID]) -> Iterator[None]:
    """Raise OutcomeUnknown instead of an error that denies a write, if an answer was lost before."""
    try:
        yield
    except (BackendUnavailable, DeadlineExceeded, RetriesExhausted) as error:
        if lost:
            raise OutcomeUnknown(lost[-1]) from error
        raise


class _Place:
    """A place in the queue."""

    def __init__(self, ticket: str, waker: Waker) -> None:
        self.ticket, self._waker, self.was_served = ticket, waker, False

    def wait(self, seconds: float) -> None:
        self._waker.wait(seconds)

    def served(self) -> None:
        self.was_served = True


def _event(step: Step, position: str) -> LeaseEvent:
    """Return a step of a lease as an event. Raises UnreadableRow."""

    def read() -> LeaseEvent:
        changes = decode(json.loads(step.changes or "[]"))
        who = next((c for c in changes if isinstance(c, LeaseHolder)), LeaseHolder(None, None))
        whose = (utc(step.time), who.owner, who.incarnation, step.principal)
        return LeaseEvent(step.action, step.version or 0, *whose, step.operation_id)

    return naming(read, step.kind, step.entity_id, step.version, position)


def _commit(event: Fenced, lease_id: int, holders: Mapping[int, LeaseHolder], position: str) -> LeaseEvent:
    """Return a commit that was made under the lease as an event. Raises UnreadableRow."""
    try:
        token = dict(read_note(event.fences).leases)[lease_id]
        who = holders.get(token, LeaseHolder(None, None))
        whose = (utc(event.time), who.owner, who.incarnation, event.principal)
    except Exception as error:
        row = f"the leases of operation {event.operation_id}, position {position},"
        raise UnreadableRow(row, reason(error), position=position) from error
    return LeaseEvent("commit", token, *whose, event.operation_id, position, event.path)


def _path(name: str) -> str:
    return format_path((name,))


def _grant(row: LeaseRow) -> Grant:
    assert row.incarnation is not None
    fence = LeaseToken(row.name, row.id, row.token, row.incarnation)
    return Grant(row.name, row.token, utc(row.expires_at or 0), fence)


def _token(name: str, lease_id: int | None, token: int | None, take: Take) -> LeaseToken:
    assert lease_id is not None
    assert token is not None
    return LeaseToken(name, lease_id, token, take.incarnation)


def _tokens(grants: Sequence[Grant]) -> list[LeaseToken]:
    return [grant.fence for grant in grants if grant.fence is not None]


def _holder(row: LeaseRow, now: int) -> Holder:
    assert row.owner is not None
    acquired_at, expires_at = row.acquired_at or 0, row.expires_at or 0
    times = (utc(acquired_at), utc(expires_at), expires_at <= now)
    return Holder(row.name, row.token, row.owner, row.incarnation or "", *times, row.waiting)
