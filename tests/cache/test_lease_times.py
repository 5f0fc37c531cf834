"""A member's lease lasts from the instant before its renewal was sent, however late the answer comes.

Writers count the ttl from the renewal in the database. A lease that is counted from its answer lasts longer than they
wait: then the member serves what they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from metastore.cache.entries import Entries
from metastore.cache.fence import CacheLease
from metastore.cache.membership import Member, Shown
from metastore.clock import Clock
from metastore.port.members import Announcement, MemberRows, Membership
from tests.leases.worlds import Time

TTL = 10.0


@dataclass
class _Rows:
    """A database whose answers are late, and that notes when a request came which renews the registration."""

    clock: Time
    late: float
    older: int = 0
    """For how many looks an older transaction runs."""
    renewed: list[float] = field(default_factory=list)
    listens = True

    def _answers(self) -> None:
        self.clock.go(self.late)

    def wake(self) -> _Rows:
        return self

    def wait(self, seconds: float) -> None:
        self.clock.go(seconds)

    def join(self, wake: object, before: object, ttl: int, host: str, pid: int) -> Membership:
        assert ttl == TTL * 1e6
        self.renewed.append(self.clock.monotonic())
        self._answers()
        return Membership(1, "one")

    def begin(self, wake: object) -> int:
        self._answers()
        return 7

    def oldest(self, wake: object) -> int:
        self._answers()
        self.older -= 1
        return 7 if self.older >= 0 else 8

    def look(
        self,
        wake: object,
        member: Membership,
        apply: Callable[[Sequence[Announcement]], bool],
        *,
        renew: bool,
    ) -> Membership:
        if renew:
            self.renewed.append(self.clock.monotonic())
        apply(())
        self._answers()
        return member

    def tidy(self, wake: object) -> None:
        self._answers()


def _member(rows: _Rows) -> Member:
    """Return a member that did not begin: a test takes its steps one by one."""

    def new_lease() -> CacheLease:
        return CacheLease(cast(Clock, rows.clock), Entries(10, 1 << 20))

    return Member(cast(MemberRows, rows), rows.clock, TTL, new_lease, lambda *_: Shown(False, False))


def _ends(lease: CacheLease) -> tuple[float, float, float, float]:
    return lease.mono, lease.boot, lease.wall, lease.wall_from


def _from(rows: _Rows) -> tuple[Any, ...]:
    """Return what a lease says that lasts from the newest renewal."""
    monotonic = rows.renewed[-1]
    wall = rows.clock.micros() / 1e6 - rows.clock.monotonic() + monotonic
    return monotonic + TTL, monotonic + TTL, pytest.approx(wall + TTL), pytest.approx(wall)


def test_a_registration_and_each_renewal() -> None:
    rows = _Rows(Time(), late=0.5)
    member = _member(rows)
    member._join()
    assert member.lease.serving
    assert _ends(member.lease) == _from(rows)
    for renewals in range(2, 5):
        while len(rows.renewed) < renewals:
            assert member._once()
            assert member.lease.holds()
        assert rows.renewed[-1] >= rows.renewed[-2] + TTL / 3
        assert _ends(member.lease) == _from(rows)


def test_a_registration_that_waits_for_older_transactions() -> None:
    rows = _Rows(Time(), late=0.5, older=30)
    member = _member(rows)
    member._join()
    assert len(rows.renewed) > 3, "it renews while it waits: writers wait for it all the same"
    assert _ends(member.lease) == _from(rows)


def test_an_answer_after_the_ttl_ends_the_lease_at_once() -> None:
    rows = _Rows(Time(), late=0.5)
    member = _member(rows)
    member._join()
    rows.late = TTL
    while len(rows.renewed) < 2:
        assert member._once()
    assert not member.lease.holds()
    rows.late = 0.5
    assert member._once()
    assert member.lease.holds(), "it renews at once"
