"""Every figure and its bar, by the group that measures it."""

from __future__ import annotations

from math import inf, nextafter

from tests.bench.figures import Bar, reported

__all__ = ["BARS", "GROUPS"]

_MORE_THAN_1 = Bar(">=", nextafter(1.0, inf))
_LESS_THAN_1 = Bar("<=", nextafter(1.0, -inf))

GROUPS: dict[str, dict[str, Bar]] = {
    "round_trips": {
        "cold_round_trips_extra": Bar("<=", 0),
    },
    "hot_5ms_32": {
        "hot_5ms_32_rate_vs_best_other": Bar(">=", 3),
        "hot_5ms_32_p99_vs_best_other": Bar("<=", 0.5),
        "hot_5ms_32_worst_attempts": Bar("<=", 4),
        "hot_5ms_32_fairness": Bar(">=", 0.5),
        "hot_5ms_32_errors": Bar("<=", 0),
        "hot_5ms_32_rate": reported,
        "hot_5ms_32_p99_ms": reported,
        "hot_5ms_32_worst_ms": reported,
    },
    "hot_0ms_32": {
        "hot_0ms_32_rate_vs_for_update": Bar(">=", 1.5),
        "hot_0ms_32_rate_vs_serializable": Bar(">=", 1.5),
        "hot_0ms_32_rate_vs_cas": Bar(">=", 1.5),
        "hot_0ms_32_worst_vs_cas_jitter": _LESS_THAN_1,
        "hot_0ms_32_worst_vs_advisory": _LESS_THAN_1,
        "hot_0ms_32_fairness_vs_cas_jitter": _MORE_THAN_1,
        "hot_0ms_32_errors": reported,
        "hot_0ms_32_rate": reported,
        "hot_0ms_32_p99_ms": reported,
        "hot_0ms_32_worst_ms": reported,
        "hot_0ms_32_fairness": reported,
    },
    "cold": {
        "cold_rate_vs_cas": Bar(">=", 0.95),
        "cold_rate": reported,
    },
    "exclusive": {
        "exclusive_rename_p95_ms": Bar("<=", 100),
        "creates_rate_under_rename": Bar(">=", 0.8),
        "exclusive_rename_p50_ms": reported,
        "exclusive_rename_worst_ms": reported,
        "creates_per_s": reported,
        "creates_worst_ms": reported,
        "creates_worst_under_rename_ms": reported,
        "exclusive_errors": reported,
    },
}

BARS: dict[str, Bar] = {name: bar for group in GROUPS.values() for name, bar in group.items()}
