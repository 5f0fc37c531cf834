"""Rule: a call ends by its deadline, reports it only when it has passed, and is not run again and again.

If others use the machine too, everything takes longer: the limits grow as the remaining share of the machine shrinks.
And the time in which a process was ready to run and got no processor does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from tests.joints.judge.call import Call
from tests.joints.judge.evidence import Evidence, Found

__all__ = ["untimely"]

_GRACE: Final = 2.0
"""How late a call may end (seconds)."""
_EARLY: Final = 0.9
"""The part of a deadline that must be over when a call says that it has passed: it counts from the call's own begin."""
_RUNS: Final = 25
"""How often the function of a transaction may run. Each run but the first has lost to another commit."""
_SLOW: Final = 4.0
"""No call takes so long in fair weather (seconds)."""
_USUAL: Final = 5
"""Nor so many times as long as the usual call."""


def untimely(evidence: Evidence) -> Iterator[Found]:
    """Yield each call that ended too late, gave up too early, ran too often, or took long for no reason."""
    left, fair = evidence.run["left"], evidence.run["rough"]
    usual = median([call.seconds for call in evidence.calls] or [0.0])
    slow = max(_SLOW / left, _USUAL * usual)
    for call in evidence.calls:
        moved = call.seconds - _stopped(call, evidence) - evidence.starved_in(call)
        if moved - call.deadline > _GRACE / left:
            late = f"it ended {moved - call.deadline:.1f} s after its deadline of {call.deadline} s"
            yield evidence.found("late", late, call)
        elif call.error == "DeadlineExceeded" and call.seconds < _EARLY * min(call.deadline, call.timeout or 1e9):
            early = f"it said after {call.seconds:.3f} s that its deadline of {call.deadline} s had passed"
            yield evidence.found("early", early, call)
        elif call.runs > _RUNS:
            yield evidence.found("starved", f"its function ran {call.runs} times", call)
        elif moved > slow and (call.end or 0) < fair and call.action != "bulk":  # its size is a reason
            long = f"it took {moved:.1f} s, and nothing that had been done is a reason to wait"
            yield evidence.found("slow", long, call)


def _stopped(call: Call, evidence: Evidence) -> float:
    """Return how long the process of a call, or the server, stood still or was away meanwhile."""
    process, end, total = call.client.partition("-")[0], call.end or call.start, 0.0
    for one in evidence.weather:
        if one["what"] in ("restart", "fail_over") or one.get("process") == process:
            began, ended = one.get("since", one["at"]), one["at"]
            total += max(0, min(end, ended) - max(call.start, began)) / 1e9
    return total
