"""Announce a change to the members of the cache before it commits; nothing is announced where there are none.

A commit says one of two things. It carries the generation under which this process saw no members: the statement fails
if another generation has begun. Or it names an announcement that each member has acknowledged: a trigger checks that.
An announcement lasts over the attempts of one operation, until one commits. docs/cache.md has the protocol.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeVar
from uuid import UUID

from metastore.backends.postgres import members as sql
from metastore.backends.postgres.parameters import Row, Statement, plain
from metastore.clock import SYSTEM, Clock
from metastore.deadlines import remaining
from metastore.errors import DeadlineExceeded, MetastoreError
from metastore.port.acknowledgement import Answer, Verdict, decide
from metastore.port.commit import Conflicted, Unknown
from metastore.port.members import NOTHING, Covered

__all__ = ["Announcing", "Pass", "Unannounced"]

T = TypeVar("T")
Asks = Callable[[str, dict[str, Any]], list[Row]]

DRIFT: Final = 0.01
"""How far two clocks may drift apart, as a part of the time that passes."""
_POLLS: Final = (0.0005, 0.005, 0.05)
"""How long a writer waits before it looks at the members again: at first, soon, and when it takes long (seconds)."""
_LONG: Final = 1.0
_WATCHES: Final = 0.2
"""How often a process that writes looks at the members, so that it knows since when one is silent (seconds)."""
_STOPS: Final = 60.0
"""How long after its last write it goes on to do that (seconds)."""
_KEPT: Final = 1000
"""How many announcements of attempts that lost are kept at most."""
_log = logging.getLogger("metastore")


class Unannounced(Exception):
    """The commit was refused: members joined since, or have not acknowledged all that it changes."""


class Pass(NamedTuple):
    """Why a commit may be sent: one of the two, or none where it changes nothing that is cached."""

    generation: int | None = None
    announcement: int | None = None
    left: tuple[int, ...] = ()
    """Announcements that earlier attempts of these operations have left, and that nobody will use."""

    def around(self, statements: list[Statement], operations: Sequence[UUID]) -> list[Statement]:
        """Return the statements of a commit with what it must say."""
        for statement in statements:
            statement.parameters["generation"] = self.generation
        if self.announcement is None:
            return statements
        # one operation that loses uses its announcement again; those of a batch go with other batches, in another one
        waits_for = plain(operations) if len(operations) == 1 else None
        after = {"announcement": self.announcement, "left": plain(self.left), "operations": waits_for}
        return [
            Statement(sql.ANNOUNCED, {"announcement": self.announcement}),
            *statements,
            Statement(sql.WITHDRAW, after),
        ]


class _Seen(NamedTuple):
    """A member as it was judged. What another thread has seen of it since then does not count."""

    id: int
    incarnation: str
    renewals: int


class _Kept(NamedTuple):
    """An announcement that a commit which lost has left."""

    id: int
    covered: Covered
    at: float


class Announcing:
    """What one process knows of the members, and its announcements. Any number of threads may use it."""

    def __init__(self, ask: Asks, timeout: float, clock: Clock = SYSTEM) -> None:
        self._ask, self._timeout, self._clock = ask, timeout, clock
        self.generation: int | None = None
        """The generation under which this process saw no members; None: it has not looked, or there are some."""
        self._some = False
        """There were members when this process looked last."""
        self._lock = threading.Lock()  # what is kept changes in the callers' threads and in the one that watches
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()
        self._silent: dict[tuple[int, str], tuple[int, float]] = {}
        """Of each member: the renewals that were seen last, and since when (monotonic)."""
        self._wrote = 0.0
        self._watching = False
        self._stop = threading.Event()
        self._gone: list[int] = []
        """Announcements that nobody will use."""
        _ALL.add(self)

    def fork(self) -> None:
        """Begin again in a forked child: a thread of the parent may hold the locks, and watches for the parent only."""
        self._lock, self._watching, self._stop = threading.Lock(), False, threading.Event()
        self._kept, self._gone = OrderedDict(), []  # the parent's operations use them

    # --- sending

    def send(
        self, send: Callable[[Pass], T], what: Callable[[], Covered], operations: Callable[[], Sequence[UUID]]
    ) -> T:
        """Send a commit with what it must say; announce it first if there are members. Raises DeadlineExceeded."""
        generation = self.generation
        if generation is not None:
            try:
                return send(Pass(generation))
            except Unannounced:
                self.generation = None
        changes = what()
        if changes == NOTHING:
            return send(Pass())
        ids = operations()
        while True:
            try:
                return self._sent(send, changes, ids)
            except Unannounced:
                continue

    def _sent(self, send: Callable[[Pass], T], changes: Covered, operations: Sequence[UUID]) -> T:
        generation = None if self._some else self._alone()
        if generation is not None:
            return send(Pass(generation))
        own = operations[0] if len(operations) == 1 else None
        kept, left = self._taken(operations)
        try:
            if own is not None and kept is not None and changes.within(kept.covered):
                left = ()
            else:
                kept = self._announced(changes)
            outcome = send(Pass(announcement=kept.id, left=left))
        except BaseException:
            self._leave(*left, *([] if kept is None else [kept.id]))
            raise
        if own is not None and isinstance(outcome, Conflicted):
            self._keep(own, kept)
            self._leave(*left)
        elif isinstance(outcome, Conflicted | Unknown):
            self._leave(*left, kept.id)
        return outcome

    def _alone(self) -> int | None:
        """Return the generation under which there are no members. It is read before them: see members.ANY_MEMBERS."""
        ((generation,),) = self._ask(sql.GENERATION_NOW, {})
        ((some,),) = self._ask(sql.ANY_MEMBERS, {})
        self._some = some
        self.generation = generation_now = None if some else int(generation)
        return generation_now

    def _announced(self, changes: Covered) -> _Kept:
        """Announce, and wait until all members have acknowledged or are dead."""
        self._watch()
        ((announcement, xid, _),) = self._ask(sql.ANNOUNCE, sql.announce_parameters(changes))
        try:
            self._wait(xid)
        except BaseException:
            self._leave(announcement)  # the call's time may be over
            raise
        return _Kept(announcement, changes, self._clock.monotonic())

    def _wait(self, xid: int) -> None:
        clock = self._clock
        began, ends = clock.monotonic(), clock.monotonic() + remaining(clock, self._timeout)
        pause = _POLLS[0]
        while clock.monotonic() < ends:
            members = self._ask(sql.ACKNOWLEDGED, {"xid": xid})
            self._some = bool(members)
            now = clock.monotonic()
            answers = self._noted(members, now)
            verdict = decide(answers.values(), budget_left=now < ends)
            silent = [m for m, answer in answers.items() if answer.said != "acknowledged" and answer.silent]
            given_up = [self._give_up(member) for member in silent]
            if all(given_up) and verdict is Verdict.SAFE:
                return
            if verdict is Verdict.FAIL:
                break
            clock.sleep(min(pause, max(0.0, ends - now)))
            pause = _POLLS[2] if now - began > _LONG else min(pause * 1.5, _POLLS[1])
        raise DeadlineExceeded(
            "nothing was written: a process that caches did not acknowledge the change before the deadline, and its "
            "lease is not over; call again later (metastore cache says which process it is)"
        )

    def _noted(self, members: Sequence[Row], now: float) -> dict[_Seen, Answer]:
        """Return what is known of each member; note since when its renewals are what they are."""
        answers: dict[_Seen, Answer] = {}
        with self._lock:
            seen, there = self._silent, set[tuple[int, str]]()
            for member_id, incarnation, renewals, ttl, acknowledged in members:
                key = (member_id, incarnation)
                there.add(key)
                known = seen.get(key)
                if known is None or known[0] != renewals:
                    known = seen[key] = (renewals, now)
                # this clock may be fast, and the member's slow
                proceed = ttl / 1e6 * (1 + 2 * DRIFT)
                said: Literal["acknowledged", "nothing"] = "acknowledged" if acknowledged else "nothing"
                answers[_Seen(*key, renewals)] = Answer(said, now - known[1] >= proceed)
            for key in seen.keys() - there:
                del seen[key]
        return answers

    def _give_up(self, member: _Seen) -> bool:
        """Remove a member whose lease is over; return whether that was done: not if it has renewed since then."""
        gone = bool(self._ask(sql.EVICT, member._asdict()))
        if gone:
            _log.warning("the cache's member %d did not renew for its ttl: it is not waited for any more", member.id)
        return gone

    # --- announcements of attempts that lost

    def _taken(self, operations: Sequence[UUID]) -> tuple[_Kept | None, tuple[int, ...]]:
        """Take what earlier attempts of these operations have left: the newest of it, and the numbers of all of it."""
        with self._lock:
            kept = [self._kept.pop(one) for one in operations if one in self._kept]
        return (kept[-1] if kept else None), tuple([one.id for one in kept])

    def _keep(self, operation: UUID, kept: _Kept) -> None:
        """Keep an announcement for the operation's next attempt."""
        with self._lock:
            self._kept[operation] = kept
            while len(self._kept) > _KEPT:
                self._gone.append(self._kept.popitem(last=False)[1].id)

    def _leave(self, *announcements: int) -> None:
        """Leave announcements that nobody will use to the thread that watches: it withdraws them."""
        with self._lock:
            self._gone += announcements

    def _withdraw(self, announcement: int) -> None:
        self._ask(f"{sql.WITHDRAW} RETURNING 1", {"announcement": announcement, "left": None, "operations": None})

    # --- watching

    def _watch(self) -> None:
        """Let a thread look at the members for a while."""
        self._wrote = self._clock.monotonic()
        with self._lock:
            if self._watching:
                return
            self._watching = True
        threading.Thread(target=self._look_on, name="metastore cache members", daemon=True).start()

    def _look_on(self) -> None:
        try:
            while self._clock.monotonic() - self._wrote < _STOPS and not self._stop.wait(_WATCHES):
                with suppress(MetastoreError):
                    members = self._ask(sql.ACKNOWLEDGED, {"xid": 3})
                    self._noted(members, self._clock.monotonic())
                    self._clear_away()
                    if not members:
                        return
        finally:
            self._watching = False

    def close(self) -> None:
        """Let the thread that looks at the members end, and withdraw what is left."""
        self._stop.set()
        with suppress(MetastoreError):
            self._clear_away(keeps=False)

    def _clear_away(self, *, keeps: bool = True) -> None:
        """Withdraw what attempts left that were not repeated; ``keeps``: those of a moment ago may be."""
        before = self._clock.monotonic() - _LONG if keeps else math.inf
        with self._lock:
            gone = [(operation, kept.id) for operation, kept in self._kept.items() if kept.at < before]
            for operation, _ in gone:
                del self._kept[operation]
            given_up, self._gone = self._gone, []
        for announcement in [*given_up, *[one for _, one in gone]]:
            self._withdraw(announcement)


_ALL: weakref.WeakSet[Announcing] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_ALL):
        one.fork()


os.register_at_fork(after_in_child=_after_fork)
