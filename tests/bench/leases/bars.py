"""Every figure and its bar, by the group that measures it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Bar, reported
from tests.bench.leases.cells import LOADS, PEERS, Load

__all__ = ["BARS", "GROUPS", "OF_A_CELL", "RIVALS", "groups"]

OF_A_CELL = ("per_s", "p50_ms", "p99_ms", "worst_ms", "fairness", "errors")
RIVALS = {
    "postgres": [peer for peer in PEERS if peer not in ("postgres", "sqlite", "s3", "s3_fenced")],
    "s3": ["hudi"],
    "s3_fenced": ["hudi"],
}
"""Which of ours is held against which of the others: operations per second, of the same turn."""


def groups(loads: Sequence[Load]) -> dict[str, dict[str, Bar]]:
    """Return the figures of these loads. Of their numbers of processes the largest has the bar."""
    processes = sorted({load.processes for load in loads})
    return {
        "round_trips": {
            "acquire_round_trips": Bar("<=", 1),
            "acquire_new_name_round_trips": Bar("<=", 1),
            "acquire_many_round_trips": Bar("<=", 1),
            "release_round_trips": Bar("<=", 1),
            "fenced_commit_round_trips_extra": Bar("<=", 0),
            "renew_round_trips": reported,
            "waited_acquire_round_trips": reported,
            "s3_requests_pair": reported,
            "s3_fenced_requests_pair": reported,
            "hudi_requests_pair": reported,
        },
        "fenced": {
            "fenced_commit_cost": Bar("<=", 1.2),
            **{f"fenced_commit_cost_{count}": reported for count in processes[:-1]},
            **{
                f"{kind}_commit_{count}_{what}": reported
                for count in processes
                for kind in ("fenced", "unfenced")
                for what in ("p50_ms", "p99_ms", "per_s")
            },
        },
        "cells": {
            **{f"{load}_{peer}_{what}": reported for load in loads for peer in PEERS for what in OF_A_CELL},
            **{f"{load}_{a}_vs_{b}": reported for load in loads for a, others in RIVALS.items() for b in others},
        },
    }


GROUPS = groups(LOADS)
BARS: dict[str, Bar] = {name: bar for group in GROUPS.values() for name, bar in group.items()}
