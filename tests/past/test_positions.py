"""The position that a time means, where stamps go back and positions have gaps: compared with a walk over all."""

from __future__ import annotations

import random
from typing import cast

import pytest

from metastore.feed import position
from metastore.feed.position import position_before
from metastore.port.past import PastRows


class _Changes:
    """Changes at positions, each with its stamp."""

    def __init__(self, stamps: dict[int, int]) -> None:
        self._stamps = stamps

    def times(self, after: int, limit: int) -> list[tuple[int, int]]:
        return [(at, self._stamps[at]) for at in sorted(self._stamps) if at > after][:limit]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_one_before_the_first_change_that_is_stamped_so_late(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(30):
        positions = sorted(chance.sample(range(1, 40), chance.randrange(1, 30)))
        stamps = {at: at * 10 + chance.randrange(-60, 60) for at in positions}
        past = cast(PastRows, _Changes(stamps))
        for time in (*stamps.values(), *(stamp + 1 for stamp in stamps.values()), -1000, 1000):
            late = [at for at in positions if stamps[at] >= time]
            found = position_before(past, time)
            shown = [at for at in positions if at <= found]
            assert shown == [at for at in positions if not late or at < late[0]], (stamps, time, found)


@pytest.mark.parametrize("seed", range(10))
def test_no_change_near_before_it_is_stamped_so_late(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks back in steps, until a whole step shows none: also the change at the border of two steps."""
    monkeypatch.setattr(position, "_WALK", 3)
    chance = random.Random(seed)
    for _ in range(50):
        stamps = {at: at * 10 + chance.randrange(-60, 60) for at in range(1, 30) if chance.random() < 0.9}
        for time in stamps.values():
            found = position_before(cast(PastRows, _Changes(stamps)), time)
            assert [at for at in range(found - 2, found + 1) if stamps.get(at, -1000) >= time] == []
