"""Find which members of the cache are silent, and give up those whose lease is over.

A member is silent while its ``renewals`` stay the same. Its lease ends at most ``ttl`` after its last renewal. So a
member that was silent for its ttl and a margin, by this process's monotonic clock, no longer answers from memory. The
statement that removes a member changes nothing if the member has renewed meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from metastore.backends.postgres.fragments import DURABLE
from metastore.backends.postgres.parameters import Row
from metastore.backends.sql.dialect import Fetch
from metastore.clock import Clock
from metastore.port.acknowledgement import Answer

DRIFT: Final = 0.01
"""How far two clocks may drift apart, as a fraction of the time."""
EVERY_TRANSACTION: Final = 3
"""The first transaction id of a database, which every snapshot shows."""

ACKNOWLEDGED = """SELECT id, incarnation, renewals, ttl, pg_visible_in_snapshot(%(xid)s::text::xid8, seen::pg_snapshot)
FROM cache_member"""
EVICT = f"""DELETE FROM cache_member WHERE id = %(id)s::bigint AND incarnation = %(incarnation)s::text
  AND renewals = %(renewals)s::bigint AND {DURABLE} RETURNING 1"""
"""Gives up a member, unless it has renewed since the last look."""
_log = logging.getLogger("metastore")


class Judged(NamedTuple):
    """A member as it was judged; later observations of other threads do not count."""

    id: int
    incarnation: str
    renewals: int


class Silence:
    """One process's knowledge of how long members have been silent. Any number of threads may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[tuple[int, str], tuple[int, float]] = {}
        """For each member: the renewals last seen, and since when they are the same (monotonic)."""
        self._lock = threading.Lock()

    def fork(self) -> None:
        """Continue in a forked child with a new lock, because a thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def answers(self, ask: Fetch, xid: int) -> dict[Judged, Answer]:
        """Return for each member whether it has acknowledged a transaction, and whether its lease is over."""
        members = ask(ACKNOWLEDGED, {"xid": xid})
        return self.noted(members, self._clock.monotonic())

    def noted(self, members: Sequence[Row], now: float) -> dict[Judged, Answer]:
        """Return each member with its silence; note since when its renewals are the same."""
        answers: dict[Judged, Answer] = {}
        with self._lock:
            seen, there = self._since, set[tuple[int, str]]()
            for member_id, incarnation, renewals, ttl, acknowledged in members:
                key = (member_id, incarnation)
                there.add(key)
                known = seen.get(key)
                if known is None or known[0] != renewals:
                    known = seen[key] = (renewals, now)
                # this clock may be fast and the member's clock slow, so wait for twice the drift
                proceed = ttl / 1e6 * (1 + 2 * DRIFT)
                said: Literal["acknowledged", "nothing"] = "acknowledged" if acknowledged else "nothing"
                answers[Judged(*key, renewals)] = Answer(said, now - known[1] >= proceed)
            for key in seen.keys() - there:
                del seen[key]
        return answers

    def give_up(self, ask: Fetch, member: Judged) -> bool:
        """Remove a member whose lease is over; return whether it was removed. A member that has renewed since stays."""
        gone = bool(ask(EVICT, member._asdict()))
        if gone:
            _log.warning("the cache's member %d did not renew for its ttl: writers no longer wait for it", member.id)
        return gone

    def give_up_silent(self, ask: Fetch) -> int:
        """Remove all members whose lease is over; return the number of members before."""
        answers = self.answers(ask, EVERY_TRANSACTION)
        for member, answer in answers.items():
            if answer.silent:
                self.give_up(ask, member)
        return len(answers)
