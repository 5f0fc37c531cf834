"""The values of an analysis: plain, and small enough for the driver however long the run was.

Times are milliseconds unless their name says otherwise. An operation is a *read* if its outcome says so or its action
only looks; all others are *writes*. The *conflict rate* is the share of the writes' attempts that lost. The *time to
commit* is from the call to the return, of writes that were applied. A call *gave up* if it returned without an answer:
its attempts or its time ran out, or the acknowledgement was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Action", "Analysis", "Bucket", "ClientShare", "HotEntity", "Moment", "Run", "Times"]


@dataclass(frozen=True)
class Times:
    """How long something took. Percentiles are of values that occurred (nearest rank), within 0.01 % of the ranks."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Action:
    """All operations with one action (or all of a run: ``name`` is then empty)."""

    name: str
    outcomes: Mapping[str, int]
    """The number of calls by outcome; those that did not occur are 0."""
    writes: int
    attempts: int
    """Of the writes."""
    attempts_mean: float
    """Of the writes that made any; those that gave up too."""
    attempts_p99: int
    attempts_max: int
    conflicts: int
    causes: Mapping[str, int]
    """The conflicts by cause, most frequent first."""
    helped: int
    """Writes that another operation's commit applied."""
    commit: Times | None
    """None: nothing was applied."""
    read: Times | None
    """From the call to the return, of what was only read."""

    @property
    def operations(self) -> int:
        return sum(self.outcomes.values())

    @property
    def returned(self) -> int:
        """Those that came back at all; those that gave up too."""
        return self.operations - self.outcomes["open"]

    @property
    def gave_up(self) -> int:
        """Those that came back without an answer. No time, no fairness and no histogram of times contains them."""
        return self.outcomes["conflicted"] + self.outcomes["unknown"]

    @property
    def conflict_rate(self) -> float:
        return self.conflicts / max(self.attempts, self.conflicts, 1)

    @property
    def helped_share(self) -> float:
        """Of the applied calls."""
        return self.helped / max(self.outcomes["applied"], 1)


@dataclass(frozen=True)
class Moment:
    """The calls that returned within one stretch of time."""

    start: float
    """Seconds since the run's first call."""
    seconds: float
    """How long it is."""
    operations: int
    writes: int
    attempts: int
    conflicts: int

    @property
    def conflict_rate(self) -> float:
        return self.conflicts / max(self.attempts, self.conflicts, 1)


@dataclass(frozen=True)
class Bucket:
    """How many times to commit were at least ``low`` and less than ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class ClientShare:
    """The work of one client, over all its incarnations."""

    client: str
    operations: int
    """Those that were answered: applied, nothing, read or failed."""
    writes: int
    """Those that were applied."""
    conflicts: int


@dataclass(frozen=True)
class HotEntity:
    """An entity that attempts lost on. An unknown value is None."""

    entity_id: int | None
    path: str | None
    """Where it was last."""
    conflicts: int
    operations: int
    """Those that say that they were about it."""


@dataclass(frozen=True)
class Run:
    """One run with one number of clients."""

    folder: str
    """The name of its record folder."""
    clients: int
    """As many as were to run, or as many as left records, whichever is more."""
    missing: tuple[str, ...]
    """A sentence for each client whose records are missing: it is in no figure."""
    seconds: float
    """From the first call to the last return."""
    whole: Action
    actions: tuple[Action, ...]
    """By name."""
    moments: tuple[Moment, ...]
    """Without gaps, to the last return; all of one length but the last, which may be half as long or half longer."""
    commit_histogram: tuple[Bucket, ...]
    """Without gaps; eight to a power of ten."""
    attempts_histogram: tuple[tuple[int, int], ...]
    """Attempts, how many writes needed as many."""
    shares: tuple[ClientShare, ...]
    """A client that got nothing done is there too. A client whose records are missing is not."""
    hot: tuple[HotEntity, ...]
    """Most conflicts first, ten at most."""
    facts: Mapping[str, Any]
    """The run's own ``run.json``; empty: it left none."""

    @property
    def operations_per_second(self) -> float:
        """All that returned; those that gave up too."""
        return self.whole.returned / self.seconds if self.seconds else 0.0

    @property
    def fairness(self) -> float:
        """Jain's index of the answered operations by client: 1 if all got the same done, 1 / clients if one did all.

        Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC-TR-301, 1984.
        """
        counts = [share.operations for share in self.shares]
        squares = sum(count * count for count in counts)
        return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0

    @property
    def slowest_fastest(self) -> tuple[int, int]:
        """Answered operations of the client that got least done, and of the one that got most."""
        counts = [share.operations for share in self.shares] or [0]
        return min(counts), max(counts)


@dataclass(frozen=True)
class Analysis:
    """One run, or those of a ramp, fewest clients first."""

    runs: tuple[Run, ...]
    facts: Mapping[str, Any]
    """The facts in ``run.json`` on all of them: scenario, seed, started, url, versions …; a missing one is unknown."""

    @property
    def is_ramp(self) -> bool:
        return len(self.runs) > 1
