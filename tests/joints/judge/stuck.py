"""Rule: the leftovers of one client do not keep others from writing: some call on each path gets through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.joints.judge.call import READS, Call
from tests.joints.judge.evidence import Evidence, Found

__all__ = ["stuck"]

_LONG: Final = 12.0
"""How long it may be that no call on a path gets through (seconds)."""
_TRIED: Final = 3
"""How many calls must have tried in that time."""
_GAVE_UP: Final = frozenset({"BackendUnavailable", "DeadlineExceeded", "OutcomeUnknown", "ScopeFrozen"})


def stuck(evidence: Evidence) -> Iterator[Found]:
    """Yield each time in which every write on a path gave up."""
    tried: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(evidence.calls, key=lambda call: call.end or 0):
        if call.path is not None and call.end is not None and call.action not in READS:
            tried[call.path].append(call)
    for path, calls in tried.items():
        row: list[Call] = []
        for call in calls:
            if call.error in _GAVE_UP:
                row.append(call)
                continue
            yield from _row(path, row, evidence)
            row = []
        yield from _row(path, row, evidence)


def _row(path: str, row: list[Call], evidence: Evidence) -> Iterator[Found]:
    """Look at calls that gave up one after another: none in between did not."""
    if len(row) < _TRIED or len({call.client for call in row}) == 1:  # nobody else was there: its own calls are large
        return
    began, ended = min(call.start for call in row), max(call.end or 0 for call in row)
    away = sum(one["at"] - one["since"] for one in evidence.weather if one["what"] == "restart")
    seconds = (ended - began - away) / 1e9
    if seconds > _LONG / evidence.run["left"]:
        message = f"nobody could write {path} for {seconds:.1f} s: {len(row)} calls gave up"
        yield evidence.found("stuck", message, row[0], row[-1])
