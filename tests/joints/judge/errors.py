"""Rule: no call ends with an internal error, or with a network or server error that no fault of the run explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metastore.deadlines import GRACE
from tests.joints.judge.call import Call
from tests.joints.judge.evidence import Evidence, Found

__all__ = ["untrue_errors"]

_ANSWERS: Final = frozenset(
    {
        "DeadlineExceeded", "DropPending", "EntityAlreadyExists", "EntityNotFound", "LeaseHeld", "LeaseLost",
        "NotEmpty", "ScopeFrozen", "VersionConflict",
    }
)  # fmt: skip
"""What a call may always say; other rules look at whether it was true."""
_STOPPED: Final = frozenset({"KeyboardInterrupt", "TimeoutError"})
"""What a client did to itself."""
_NETWORK: Final = frozenset({"BackendUnavailable", "OutcomeUnknown", "PoolExhausted"})
_BUSY: Final = frozenset({"BackendUnavailable", "PoolExhausted"})
_LAST_ANSWER: Final = 0.25
"""So long a call waits for the answer of a statement that it has stopped at its deadline (seconds)."""
_SAYS: Final = 0.15
"""So long a server takes for that answer, at most, where nothing else uses the machine (seconds)."""
_SELDOM: Final = 1000
"""Of so many calls one may meet a server that says nothing in time: one that never stops would do it to all."""
_WAITS: Final = 1.0
"""A connection, or SQLite's lock, becomes free sooner than that (seconds)."""


def untrue_errors(evidence: Evidence) -> Iterator[Found]:
    """Yield each error that cannot be an answer to its call."""
    network = min(
        [
            one.get("since", one["at"])
            for one in evidence.weather
            if one["what"] in ("cut", "fail_over", "restart", "silence")
        ],
        default=float("inf"),
    )
    others_lead = min(
        [one.get("since", one["at"]) for one in evidence.weather if one["what"] == "fail_over"], default=float("inf")
    )
    silent: list[Found] = []
    for call in evidence.calls:
        if call.error == "HistoryGone" and call.after is not None and (call.end or 0) >= others_lead:
            continue  # beside a gap, the new leader may lack a change
        if call.error is None or call.error in _ANSWERS | _STOPPED:
            continue
        if call.error in _NETWORK and call.end is not None and call.end >= network:
            continue
        if call.error in _BUSY and call.deadline < _WAITS:
            continue  # the pool is smaller than the crew, SQLite has one writer, and the deadline was short
        if _was_kept_out(call, evidence) or _had_no_processor(call, evidence) or _was_long(call):
            continue
        why = "and nothing was wrong with the network" if call.error in _NETWORK else "which is not an answer to it"
        found = evidence.found("error", f"it raised {call.error}, {why}: {call.message}", call)
        if _met_silence(call, evidence):
            silent.append(found)
        else:
            yield found
    if len(silent) > max(1, len(evidence.calls) / _SELDOM):
        yield from silent


def _had_no_processor(call: Call, evidence: Evidence) -> bool:
    """Whether a call's time was over, and its process was not let run for as long as it waits for the last answer.

    To get none of the process's connections, it must have been kept from running for half of its time.
    """
    if call.seconds < call.deadline:
        return False
    starved = evidence.starved_in(call)
    if call.error == "PoolExhausted":
        return starved >= call.deadline / 2
    return call.error == "OutcomeUnknown" and starved >= _LAST_ANSWER


def _was_long(call: Call) -> bool:
    """Whether a call of thousands of rows used its time for them, and got no connection at its deadline."""
    return call.action == "bulk" and call.error == "PoolExhausted" and call.seconds >= call.deadline


def _met_silence(call: Call, evidence: Evidence) -> bool:
    """Whether the server had the time that it has after a deadline, and others used so much of the machine meanwhile.

    Then the call must say that it does not know (docs/progress.md): it cannot ask any more.
    """
    late = call.error == "OutcomeUnknown" and call.seconds >= call.deadline + _LAST_ANSWER
    return late and bool(_SAYS / evidence.run["left"] >= _LAST_ANSWER)


def _was_kept_out(call: Call, evidence: Evidence) -> bool:
    """Whether a change may be announced still: SQLite's one writer was another one for as long as the call could ask.

    The call must withdraw what it announced, and that is a write. It has ``GRACE`` for that after its deadline.
    """
    asked = call.action == "alter" and call.error == "OutcomeUnknown" and call.seconds >= call.deadline + GRACE
    return asked and evidence.run.get("database") == "sqlite"
