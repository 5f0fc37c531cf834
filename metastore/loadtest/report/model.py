"""The values of an analysis: plain, and small enough for the driver, whatever the length of the run.

Times are milliseconds unless their name says otherwise. An operation is a *read* if its outcome says so, or its action
never writes; all others are *writes*. The *conflict rate* is the share of lost attempts among the writes' attempts. The
*time to commit* is the time from the call to the return of an applied write. A call *gave up* if it returned without an
answer: its attempts or its time ran out, or the acknowledgement was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Action", "Analysis", "Bucket", "ClientShare", "HotEntity", "Moment", "Run", "Times"]


@dataclass(frozen=True)
class Times:
    """Statistics of times. Percentiles are values that occurred (nearest rank), within 0.01 % of the ranks."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Action:
    """All operations with one action, or all operations of a run (then ``name`` is empty)."""

    name: str
    outcomes: Mapping[str, int]
    """The number of calls by outcome; outcomes that did not occur have 0."""
    writes: int
    attempts: int
    """The attempts of the writes."""
    attempts_mean: float
    """The mean over writes with any attempts, including those that gave up."""
    attempts_p99: int
    attempts_max: int
    conflicts: int
    causes: Mapping[str, int]
    """The conflicts by cause, most frequent first."""
    helped: int
    """How many writes the commit of another operation applied."""
    commit: Times | None
    """The times to commit; None: no write was applied."""
    read: Times | None
    """The times from the call to the return of reads."""

    @property
    def operations(self) -> int:
        return sum(self.outcomes.values())

    @property
    def returned(self) -> int:
        """The calls that returned, including those that gave up."""
        return self.operations - self.outcomes["open"]

    @property
    def gave_up(self) -> int:
        """The calls that returned without an answer. They are not part of times, fairness and histograms of times."""
        return self.outcomes["conflicted"] + self.outcomes["unknown"]

    @property
    def conflict_rate(self) -> float:
        return self.conflicts / max(self.attempts, self.conflicts, 1)

    @property
    def helped_share(self) -> float:
        """The share of the applied calls that others applied."""
        return self.helped / max(self.outcomes["applied"], 1)


@dataclass(frozen=True)
class Moment:
    """The calls that returned within one interval."""

    start: float
    """The begin of the interval, in seconds since the run's first call."""
    seconds: float
    """The length of the interval."""
    operations: int
    writes: int
    attempts: int
    conflicts: int

    @property
    def conflict_rate(self) -> float:
        return self.conflicts / max(self.attempts, self.conflicts, 1)


@dataclass(frozen=True)
class Bucket:
    """The number of times to commit that were at least ``low`` and less than ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class ClientShare:
    """The work of one client, over all its incarnations."""

    client: str
    operations: int
    """The answered operations: applied, nothing, read or failed."""
    writes: int
    """The applied writes."""
    conflicts: int


@dataclass(frozen=True)
class HotEntity:
    """An entity on which attempts lost. Unknown values are None."""

    entity_id: int | None
    path: str | None
    """Its last path."""
    conflicts: int
    operations: int
    """The operations whose record names the entity."""


@dataclass(frozen=True)
class Run:
    """One run with one number of clients."""

    folder: str
    """The name of its record folder."""
    clients: int
    """The number of clients that were to run, or that left records, whichever is more."""
    missing: tuple[str, ...]
    """A sentence for each client whose records are missing. No figure includes these clients."""
    seconds: float
    """The time from the first call to the last return."""
    whole: Action
    actions: tuple[Action, ...]
    """The actions, ordered by name."""
    moments: tuple[Moment, ...]
    """The moments without gaps, up to the last return. All have one length, except the last, which may be from half as
    long to one and a half times as long.
    """
    commit_histogram: tuple[Bucket, ...]
    """The buckets without gaps: eight for each power of ten."""
    attempts_histogram: tuple[tuple[int, int], ...]
    """Pairs: a number of attempts, and how many writes needed as many."""
    shares: tuple[ClientShare, ...]
    """The shares of all clients, even without answered operations, except those whose records are missing."""
    hot: tuple[HotEntity, ...]
    """At most ten entities, those with the most conflicts first."""
    facts: Mapping[str, Any]
    """The content of the run's ``run.json``; empty if there is none."""

    @property
    def operations_per_second(self) -> float:
        """The rate of operations that returned, including those that gave up."""
        return self.whole.returned / self.seconds if self.seconds else 0.0

    @property
    def fairness(self) -> float:
        """Jain's index of the answered operations by client: 1 if all have the same number, 1 / clients if one has all.

        Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC-TR-301, 1984.
        """
        counts = [share.operations for share in self.shares]
        squares = sum(count * count for count in counts)
        return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0

    @property
    def slowest_fastest(self) -> tuple[int, int]:
        """The least and the greatest number of answered operations of a client."""
        counts = [share.operations for share in self.shares] or [0]
        return min(counts), max(counts)


@dataclass(frozen=True)
class Analysis:
    """One run, or those of a ramp, fewest clients first."""

    runs: tuple[Run, ...]
    facts: Mapping[str, Any]
    """The facts about all runs in ``run.json``: scenario, seed, started, url, versions …; a missing one is unknown."""

    @property
    def is_ramp(self) -> bool:
        return len(self.runs) > 1
