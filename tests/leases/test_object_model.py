"""Random schedules of up to four holders against a plain model, with clocks that do not agree and waiters."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import metastore as ms
from metastore.leases.book import Refusal, Want
from tests.leases.worlds import Time

TTL, DRIFT, ALIVE = 30.0, 1.0, 15.0
HOLDERS = st.integers(0, 3)
_names = itertools.count()


class Schedules(RuleBasedStateMachine):
    """The model: the token, who holds until when, and who waits until when, in the order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        url = f"memory://model-{next(_names)}"
        clocks = [self.time.beside(moved) for moved in (0.0, 0.3, -0.3, 0.0)]  # less apart than max_drift
        self.leases = [ms.ObjectStoreLeases(url, clock=clock, max_drift=DRIFT) for clock in clocks]
        self.hands: list[ms.Lease | None] = [None] * 4
        self.places: dict[int, Any] = {}
        self.token = 0
        self.holder: int | None = None
        self.expires = 0.0
        self.seen: list[int | None] = []
        self.queue: dict[int, float] = {}

    def now(self) -> float:
        return self.time.monotonic()

    @rule(seconds=st.sampled_from([0.5, 4.0, 13.0, 17.0, 29.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.time.go(seconds)

    def _ahead(self, who: int) -> tuple[bool, bool]:
        """Whether somebody who came before certainly waits; whether one may."""
        others = [until for other, until in itertools.takewhile(lambda item: item[0] != who, self.queue.items())]
        sure = any(self.now() < until - 1.0 for until in others)
        return sure, any(self.now() < until + DRIFT + 1.0 for until in others)

    @rule(who=HOLDERS)
    def acquire(self, who: int) -> None:
        ticket = self.places[who].ticket if who in self.places else None
        want = Want(("job",), f"holder {who}", self.leases[who]._ours.incarnation, TTL, ticket)
        held = self.holder is not None
        may = self.now() > self.expires + DRIFT - 1.0
        must = self.now() > self.expires + DRIFT + 1.0
        sure, maybe = self._ahead(who)
        answer = self.leases[who]._book.take(want)
        if isinstance(answer, Refusal):
            assert (held and not must) or maybe, answer
            if answer.owner is not None:
                assert answer.owner == f"holder {self.holder}"
            return
        assert not held or may
        assert not sure
        (grant,) = answer
        self.token += 1
        assert grant.token == self.token
        self.holder, self.expires = who, self.now() + TTL
        self.seen.append(self.token)
        self.hands[who] = grant  # type: ignore[call-overload]
        if ticket is not None:
            self.places.pop(who).served()
            self.queue.pop(who)

    @precondition(lambda self: any(self.hands))
    @rule(who=HOLDERS)
    def renew(self, who: int) -> None:
        grant: Any = self.hands[who]
        if grant is None:
            return
        mine = self.holder == who and grant.token == self.token
        answer = self.leases[who]._book.renew([grant], "", TTL)
        assert (answer is not None) == mine
        if mine:
            self.expires = self.now() + TTL

    @precondition(lambda self: any(self.hands))
    @rule(who=HOLDERS)
    def release(self, who: int) -> None:
        grant: Any = self.hands[who]
        if grant is None:
            return
        mine = self.holder == who and grant.token == self.token
        assert self.leases[who]._book.release([grant], "") == mine
        if mine:
            self.token += 1
            self.holder = None

    @rule(who=HOLDERS)
    def break_(self, who: int) -> None:
        assert self.leases[who].break_("job") == (self.holder is not None)
        if self.holder is not None:
            self.token += 1
            self.holder = None

    @precondition(lambda self: self.token > 0)
    @rule(who=HOLDERS)
    def wait(self, who: int) -> None:
        if who in self.places or who == self.holder:
            return
        want = Want(("job",), f"holder {who}", "", TTL)
        self.places[who] = self.leases[who]._book.queue(want).__enter__()
        self.queue[who] = self.now() + ALIVE

    @rule(who=HOLDERS)
    def show(self, who: int) -> None:
        """A waiter that goes on waiting writes that it is alive; it keeps its place, even if it counted as dead."""
        if who not in self.places:
            return
        self.places[who]._shown = -1000.0
        self.places[who].wait(0.0)
        self.queue[who] = self.now() + ALIVE

    @rule(who=HOLDERS)
    def leave(self, who: int) -> None:
        if who in self.places:
            self.places.pop(who).__exit__(None, None, None)
            self.queue.pop(who)

    @invariant()
    def tokens_grow_by_one_and_the_trail_says_so(self) -> None:
        trail = list(self.leases[0].audit("job"))
        tokens = [event.token for event in trail]
        assert tokens == [*range(self.token + 1 - len(tokens), self.token + 1)]
        holder = next(iter(self.leases[0]._book.holders(("job",))), None)
        assert (None if holder is None else (holder.owner, holder.token)) == (
            None if self.holder is None else (f"holder {self.holder}", self.token)
        )


Schedules.TestCase.settings = settings(stateful_step_count=30)
TestSchedules = Schedules.TestCase
