"""Announce a change to the members of the cache before it commits; without members, announce nothing.

A commit carries one of two things. Either it carries the generation in which this process saw no members; then the
statement fails if another generation has begun. Or it names an announcement that all members have acknowledged; a
trigger checks that. An announcement serves all attempts of one operation, until one commits. docs/cache.md has the
protocol.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from metastore.backends.postgres import members as sql
from metastore.backends.postgres.parameters import Statement, plain
from metastore.backends.postgres.silence import Judged, Silence
from metastore.backends.sql.dialect import Fetch
from metastore.clock import SYSTEM, Clock, begins_again
from metastore.deadlines import GRACE, cleaning, remaining
from metastore.errors import DeadlineExceeded, MetastoreError
from metastore.port.acknowledgement import Verdict, decide
from metastore.port.commit import Conflicted, Unknown
from metastore.port.members import NOTHING, Covered

T = TypeVar("T")

_POLLS: Final = (0.0005, 0.005, 0.05)
"""How long a writer waits between looks at the members: at first, then, and in a long wait (seconds)."""
_LONG: Final = 1.0
_WATCHES: Final = 0.2
"""How often a writing process looks at the members, so that it gives up silent members in time (seconds)."""
_STOPS: Final = 60.0
"""How long it continues to look after its last write (seconds)."""
_KEPT: Final = 1000
"""How many announcements of lost attempts are kept at most."""


class Unannounced(Exception):
    """The commit was refused: members have joined, or have not acknowledged all its changes."""


class Pass(NamedTuple):
    """The part that a commit carries: a generation, an announcement, or neither if it changes no cached entity."""

    generation: int | None = None
    announcement: int | None = None
    left: tuple[int, ...] = ()
    """Announcements of earlier attempts that no commit will use."""

    def around(self, statements: list[Statement], again: UUID | None) -> list[Statement]:
        """Return the statements of a commit and, around them, those for its pass.

        ``again``: the operation that will use its announcement again if this attempt loses. None: remove the
        announcement in any case.
        """
        for statement in statements:
            statement.parameters["generation"] = self.generation
        if self.announcement is None:
            return statements
        after = {"announcement": self.announcement, "left": plain(self.left), "again": again}
        return [
            Statement(sql.ANNOUNCED, {"announcement": self.announcement}),
            *statements,
            Statement(sql.WITHDRAW, after),
        ]


class _Unacknowledged(Exception):
    """The deadline passed before all members had acknowledged an announcement."""

    def __init__(self, behind: Sequence[Judged]) -> None:
        """``behind``: the members that had not acknowledged at the writer's last look."""
        super().__init__()
        self._behind = behind

    def told(self, refused: int) -> str:
        """Return the error's message; ``refused``: how often the commit was refused, and announced again, before."""
        who = ", ".join([str(member.id) for member in self._behind])
        why = (
            f"a process that caches (member {who}) did not acknowledge the change before the deadline, and its lease "
            "is not over"
            if who
            else "the deadline passed before the members of the cache were asked"
        )
        again = (
            f"; before that, the commit was refused {refused} times, because a member joined or the announcement was "
            "removed, and the change was announced again"
            if refused
            else ""
        )
        return f"nothing was written: {why}{again}; call again later (metastore cache members says which process it is)"


class _Kept(NamedTuple):
    """An announcement of a lost commit, kept for the next attempt."""

    id: int
    covered: Covered
    at: float


class Announcing:
    """One process's knowledge of the members, and its announcements. Any number of threads may use it."""

    def __init__(self, ask: Fetch, timeout: float, clock: Clock = SYSTEM) -> None:
        self._ask, self._timeout, self._clock = ask, timeout, clock
        self.alone: Pass | None = None
        """The pass of each commit while this process sees no members; None: it has not looked, or there are members."""
        self._some = False
        """Whether members existed when this process last looked."""
        self._lock = threading.Lock()  # the callers' threads and the watching thread change these values
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()
        self.silence = Silence(clock)
        self._wrote = 0.0
        self._watcher: threading.Thread | None = None
        self._stop = threading.Event()
        self._gone: list[int] = []
        """Announcements that no commit will use."""
        begins_again(self, Announcing.fork)

    def fork(self) -> None:
        """Begin again in a forked child, because threads of the parent may hold the locks."""
        self._lock, self._watcher, self._stop = threading.Lock(), None, threading.Event()
        self.silence.fork()
        self._kept, self._gone = OrderedDict(), []  # the old announcements belong to the parent's operations

    def send(
        self, send: Callable[[Pass], T], what: Callable[[], Covered], operations: Callable[[], Sequence[UUID]]
    ) -> T:
        """Send a commit with its pass; if there are members, announce it first. Raises DeadlineExceeded."""
        if self.alone is not None:
            try:
                return send(self.alone)
            except Unannounced:
                self.alone = None
        changes = what()
        if changes == NOTHING:
            return send(Pass())
        ids = operations()
        refused = 0
        while True:
            try:
                return self._sent(send, changes, ids)
            except Unannounced:
                refused += 1
            except _Unacknowledged as error:
                raise DeadlineExceeded(error.told(refused)) from None

    def _sent(self, send: Callable[[Pass], T], changes: Covered, operations: Sequence[UUID]) -> T:
        alone = None if self._some else self._looked()
        if alone is not None:
            return send(alone)
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

    def _looked(self) -> Pass | None:
        """Return the pass of each commit without members; None: there are members.

        Read the generation first: see members.ANY_MEMBERS.
        """
        ((generation,),) = self._ask(sql.GENERATION_NOW, {})
        ((some,),) = self._ask(sql.ANY_MEMBERS, {})
        self._some = some
        self.alone = alone = None if some else Pass(int(generation))
        return alone

    def _announced(self, changes: Covered) -> _Kept:
        """Announce the changes, and wait until each member has acknowledged or is dead."""
        self._watch()
        parameters = sql.announce_parameters(changes)
        announcement = parameters["id"]
        try:
            ((xid, _),) = self._ask(sql.ANNOUNCE, parameters)
            self._wait(xid)
        except BaseException:
            # the call's time is over, or the answer was lost: the announcement may be in the database
            self._leave(announcement)
            raise
        return _Kept(announcement, changes, self._clock.monotonic())

    def _wait(self, xid: int) -> None:
        """Wait until each member has acknowledged or was given up. Raises _Unacknowledged at the deadline."""
        clock = self._clock
        began, ends = clock.monotonic(), clock.monotonic() + remaining(clock, self._timeout)
        pause = _POLLS[0]
        behind: list[Judged] = []
        while clock.monotonic() < ends:
            answers = self.silence.answers(self._ask, xid)
            self._some = bool(answers)
            now = clock.monotonic()
            verdict = decide(answers.values(), budget_left=now < ends)
            behind = [m for m, answer in answers.items() if answer.said != "acknowledged"]
            silent = [m for m in behind if answers[m].silent]
            given_up = [self.silence.give_up(self._ask, member) for member in silent]
            if all(given_up) and verdict is Verdict.SAFE:
                return
            if verdict is Verdict.FAIL:
                break
            clock.sleep(min(pause, max(0.0, ends - now)))
            pause = _POLLS[2] if now - began > _LONG else min(pause * 1.5, _POLLS[1])
        raise _Unacknowledged(behind)

    def _taken(self, operations: Sequence[UUID]) -> tuple[_Kept | None, tuple[int, ...]]:
        """Remove and return what earlier attempts of these operations kept: the newest, and the numbers of all."""
        with self._lock:
            kept = [self._kept.pop(one) for one in operations if one in self._kept]
        return (kept[-1] if kept else None), tuple([one.id for one in kept])

    def _keep(self, operation: UUID, kept: _Kept) -> None:
        """Keep an announcement for the operation's next attempt."""
        with self._lock:
            self._kept[operation] = kept
            while len(self._kept) > _KEPT:
                self._gone.append(self._kept.popitem(last=False)[1].id)
        self._clear_away_if_closed()

    def _leave(self, *announcements: int) -> None:
        """Give unused announcements to the watching thread, which withdraws them."""
        with self._lock:
            self._gone += announcements
        self._clear_away_if_closed()

    def _clear_away_if_closed(self) -> None:
        """Withdraw announcements if the store was closed during the call: no thread watches then."""
        if self._stop.is_set():
            with cleaning(self._clock.monotonic() + GRACE), suppress(MetastoreError):
                self._clear_away(keeps=False)

    def _withdraw(self, announcements: Sequence[int]) -> None:
        """Withdraw announcements. If that fails, try again together with the next ones."""
        try:
            left = {"announcement": None, "left": plain(announcements), "again": None}
            self._ask(f"{sql.WITHDRAW} RETURNING 1", left)
        except BaseException:
            with self._lock:
                self._gone += announcements
            raise

    def _watch(self) -> None:
        """Let a thread look at the members for a while.

        Without this thread, each write would have to wait until it knows which members are silent.
        """
        self._wrote = self._clock.monotonic()
        with self._lock:
            if self._watcher is not None and self._watcher.is_alive():
                return
            # set after the start, because an interrupt before the start must not keep others from starting a thread
            watcher = threading.Thread(target=self._look_on, name="metastore cache members", daemon=True)
            with suppress(RuntimeError):  # the system cannot start a thread now
                watcher.start()
                self._watcher = watcher

    def _look_on(self) -> None:
        while self._clock.monotonic() - self._wrote < _STOPS and not self._stop.wait(_WATCHES):
            with suppress(MetastoreError):
                members = self.silence.give_up_silent(self._ask)
                # without members, lost attempts do not need their announcements
                self._clear_away(keeps=members > 0)
                if not members:
                    return

    def close(self) -> None:
        """End the thread that looks at the members, and withdraw the remaining announcements."""
        self._stop.set()
        with suppress(MetastoreError):
            self._clear_away(keeps=False)

    def _clear_away(self, *, keeps: bool = True) -> None:
        """Withdraw announcements of attempts that were not repeated; ``keeps``: except recent ones."""
        before = self._clock.monotonic() - _LONG if keeps else math.inf
        with self._lock:
            gone = [(operation, kept.id) for operation, kept in self._kept.items() if kept.at < before]
            for operation, _ in gone:
                del self._kept[operation]
            given_up, self._gone = self._gone, []
        if given_up or gone:
            self._withdraw([*given_up, *[one for _, one in gone]])
