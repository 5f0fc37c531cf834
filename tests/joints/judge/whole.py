"""The required content of a run: each kind of call and each fault at least once, and all journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.joints.judge.evidence import Evidence

__all__ = ["counted", "doubts"]


def counted(evidence: Evidence) -> Counter[str]:
    """Return how often each kind of call was answered, each fault done, and the like."""
    counts = Counter(call.action for call in evidence.calls if call.error is None and call.end is not None)
    counts.update("rename of an ancestor" for call in evidence.calls if _moves_an_ancestor(evidence, call.principal))
    counts.update("interrupt" for call in evidence.calls if call.error == "KeyboardInterrupt")
    counts.update("cancelled" for call in evidence.calls if call.error == "TimeoutError")
    counts.update("as user" for call in evidence.calls if call.user and call.error is None)
    counts.update("refused" for call in evidence.calls if call.error in ("VersionConflict", "EntityAlreadyExists"))
    counts.update("fork" for client in {call.client for call in evidence.calls} if "f" in client)
    for what, count in evidence.run["weather"].items():
        counts[what] += count
    return counts


def _moves_an_ancestor(evidence: Evidence, principal: str) -> bool:
    written = evidence.written.get(principal, ())
    return any(event.kind in ("catalog", "schema") and event.action in ("rename", "move") for event in written)


def doubts(evidence: Evidence, needed: Iterable[str]) -> Iterator[str]:
    """Yield each reason why a run without a contradiction proves nothing."""
    yield from evidence.missing
    counts = counted(evidence)
    yield from (f"no {what}: the run has not shown how it meets the rest" for what in needed if not counts[what])
