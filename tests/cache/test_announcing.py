"""A writer gives a member up only as it was judged: what the member does meanwhile counts."""

from __future__ import annotations

from typing import Any

import pytest

from metastore.backends.postgres import members as sql
from metastore.backends.postgres.announcing import Announcing
from metastore.clock import Clock
from metastore.port.members import Covered

TTL = 10_000_000


class _Fast(Clock):
    """A clock that each look moves on by a second."""

    def __init__(self) -> None:
        object.__setattr__(self, "now", 0.0)

    def monotonic(self) -> float:
        object.__setattr__(self, "now", self.now + 1.0)  # type: ignore[attr-defined]
        return self.now  # type: ignore[attr-defined]

    def sleep(self, seconds: float) -> None:
        pass


class _Members:
    """One member, as the database shows it. It renews at the moment between the judgement and the eviction."""

    def __init__(self) -> None:
        self.renewals, self.there, self.evictions = 1, True, list[Any]()
        self.announcing = Announcing(self.ask, 1e6, _Fast())

    def rows(self) -> list[Any]:
        return [(7, "one", self.renewals, TTL, False)] if self.there else []

    def ask(self, text: str, parameters: dict[str, Any]) -> list[Any]:
        if text == sql.ANNOUNCE:
            return [(1, 100, "")]
        if text == sql.ACKNOWLEDGED:
            return self.rows()
        if text == sql.EVICT:
            if not self.evictions:  # it was stopped, and goes on; another thread of the writer sees that first
                self.renewals += 1
                self.announcing._noted(self.rows(), 1e3)
            self.evictions.append(parameters["renewals"])
            self.there = self.there and parameters["renewals"] != self.renewals
            return [] if self.there else [(1,)]
        return [(0,)]


def test_a_member_that_renews_after_it_was_judged_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    members = _Members()
    monkeypatch.setattr(members.announcing, "_watch", lambda: None)
    members.announcing._announced(Covered(ids=frozenset([1])))
    assert members.evictions == [1, 2], "the first one was of the renewals that were seen, and changed nothing"


def test_the_renewals_of_an_eviction_are_those_that_were_judged() -> None:
    members = _Members()
    (judged,) = members.announcing._noted(members.rows(), 0.0)
    members.renewals = 2
    members.announcing._noted(members.rows(), 1.0)
    members.evictions.append("begun")
    members.announcing._give_up(judged)
    assert members.there
