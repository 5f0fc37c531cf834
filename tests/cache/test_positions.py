"""Random schedules: positions are drawn, commit late or roll back, and answers arrive in any order."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from metastore.cache.positions import MOST, Positions
from metastore.port.snapshot import Watermark
from metastore.port.touched import Touch, Touched
from tests.cache.mutants import break_rule


class _Answer(NamedTuple):
    answer: Touched
    after: int
    shows: frozenset[int]
    """All positions that were committed when it was asked for."""


class _World:
    """A database that draws positions and transaction ids, and one cache's positions."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.drawn, self.next_id = 0, 10
        self.running: dict[int, int] = {}
        """The transaction of each position that is drawn and not decided."""
        self.committed: set[int] = set()
        self.applied: set[int] = set()
        self.positions = Positions("epoch", 0)
        self.on_their_way: list[_Answer] = []

    def begin(self) -> None:
        self.drawn += 1
        self.running[self.drawn] = self.next_id
        self.next_id += 1

    def decide(self) -> None:
        if self.running:
            seq = self.dice.choice(list(self.running))
            del self.running[seq]
            if self.dice.random() < 0.7:
                self.committed.add(seq)

    def ask(self) -> None:
        after, gaps = self.positions.last, set(self.positions.missing)
        rows = [Touch(seq, seq, "alter", None) for seq in self.committed if seq > after or seq in gaps]
        oldest = min(self.running.values(), default=self.next_id)
        self.on_their_way.append(_Answer(Touched("epoch", 0, oldest, rows), after, frozenset(self.committed)))

    def hear(self) -> bool:
        """Apply one answer; False: something that it shows was never applied."""
        if not self.on_their_way:
            return True
        one = self.on_their_way.pop(self.dice.randrange(len(self.on_their_way)))
        assert self.positions.apply(one.answer, one.after)
        self.applied |= {row.seq for row in one.answer.rows}
        return one.shows <= self.applied

    def note(self) -> None:
        if self.positions.stubborn:
            self.positions.watermark = Watermark(self.drawn, self.next_id)
            self.next_id += 1


def _misses(seed: int) -> bool:
    world = _World(seed)
    steps = [world.begin, world.decide, world.ask, world.note]
    for _ in range(120):
        if world.dice.random() < 0.3:
            if not world.hear():
                return True
        else:
            world.dice.choice(steps)()
    while world.running:
        world.decide()
    for _ in range(4):
        world.ask()
        while world.on_their_way:
            if not world.hear():
                return True
        world.note()
    assert not world.positions.missing, "all is decided, and it still asks"
    return False


def test_no_schedule_misses_a_change() -> None:
    assert not [seed for seed in range(1500) if _misses(seed)]


def test_schedules_find_a_cache_that_ignores_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule("ignores_gaps", monkeypatch)
    assert any(_misses(seed) for seed in range(100))


def test_schedules_find_a_cache_that_gives_up_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = Positions._give_up
    monkeypatch.setattr(Positions, "_give_up", lambda self, oldest: give_up(self, 1 << 60))
    assert any(_misses(seed) for seed in range(100))


def test_a_gap_is_given_up_although_transactions_overlap() -> None:
    """Its watermark stays until all older transactions are over: one that moved on with each answer would never do."""
    positions = Positions("epoch", 0)
    for now in range(2, 9):  # the transaction of position 1 is rolled back; each other one lasts for three answers
        assert positions.apply(Touched("epoch", 0, 10 + now, [Touch(now, now, "alter", None)]), positions.last)
        if positions.stubborn:
            positions.watermark = Watermark(now, 13 + now)
    assert positions.missing == set()


@pytest.mark.parametrize(
    "answer",
    [
        Touched("other", 0, 1, []),
        Touched("epoch", 11, 1, []),
        Touched("epoch", 0, 1, [Touch(n, 1, "alter", None) for n in range(11, 12 + MOST)]),
        Touched("epoch", 0, 1, [Touch(11 + 3 * MOST, 1, "alter", None)]),
    ],
    ids=["another epoch", "collected", "too many", "too far"],
)
def test_what_does_not_tell_all_is_refused(answer: Touched) -> None:
    assert not Positions("epoch", 10).apply(answer, 10)
    assert Positions("epoch", 10).apply(Touched("epoch", 10, 1, [Touch(11, 1, "alter", None)]), 10)


def test_as_many_as_are_asked_for_at_once_are_applied() -> None:
    """The query asks for one more: only then is there more than the answer shows."""
    positions = Positions("epoch", 10)
    assert positions.apply(Touched("epoch", 0, 1, [Touch(n, 1, "alter", None) for n in range(11, 11 + MOST)]), 10)
    assert (positions.last, positions.missing) == (10 + MOST, set())
    assert positions.apply(Touched("epoch", 0, 1, [Touch(10 + 2 * MOST + 1, 1, "alter", None)]), positions.last)
    assert len(positions.missing) == MOST, "as many gaps are asked for again"
    assert not positions.apply(Touched("epoch", 0, 1, [Touch(positions.last + 2, 1, "alter", None)]), positions.last)
