"""Linearizability by path and by id: the history checker's sweep over the calls.

The feed is the order of the writes. Each call becomes the statements that it *saw* (:mod:`tests.joints.judge.seen`) and
its writes. The checker then looks for a position between call and answer at which all that the call saw was true. The
proof is in
:mod:`metastore.checker.sweep`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metastore.checker.finding import Finding
from metastore.checker.operation import ClientOperation
from metastore.checker.records import Seen
from metastore.checker.sweep import Sweep
from metastore.checker.tree import Placed
from tests.joints.judge.call import DROPS, READS, Call
from tests.joints.judge.evidence import Evidence, Found
from tests.joints.judge.explain import explained
from tests.joints.judge.seen import seen
from tests.joints.world import kind_of

__all__ = ["contradictions"]

_UNKNOWN: Final = frozenset({"OutcomeUnknown", "KeyboardInterrupt", "TimeoutError", "CancelledError"})
"""Errors after which a call may have been applied."""
_SETTLED: Final = frozenset({"TimeoutError", "CancelledError"})
"""Of those: errors after which nothing is in flight any more. What was written before is there."""
_RIGHTS: Final = frozenset({"grant", "revoke"})
_GAVE_UP: Final = frozenset(
    {"BackendUnavailable", "PoolExhausted", "DeadlineExceeded", "RetriesExhausted", "ScopeFrozen"}
)


def contradictions(evidence: Evidence) -> Iterator[Found]:
    """Yield what no order of the calls explains."""
    placed, findings = evidence.replayed
    findings = [*findings, *_swept(evidence, placed)]
    yield from explained(evidence, findings, placed)


def _swept(evidence: Evidence, placed: list[Placed]) -> Iterator[Finding]:
    mine = dict[str, list[Placed]]()
    for effect in placed:
        if effect.seq in evidence.writer:
            mine.setdefault(evidence.writer[effect.seq].principal, []).append(effect)
    sweep = Sweep(evidence.since)
    sweep.place(effect for effect in placed if effect.seq not in evidence.writer)
    for call in evidence.calls:
        yield from sweep.take(_operation(call, tuple(mine.get(call.principal, ()))))
    yield from sweep.close()


def _operation(call: Call, events: tuple[Placed, ...]) -> ClientOperation:
    outcome, reads = _outcome(call, bool(events)), tuple(seen(call))
    if outcome == "applied" and call.path is not None and call.error is None and len(events) == 1:
        reads = (*reads, *_named(call, events[0]))
    entity_id, version = _returned(call) if outcome == "applied" else (None, None)
    began, ended = call.held if len(call.held) == 2 else (None, None)
    return ClientOperation(
        call.client, call.number, call.action, _kind(call), call.path, "", call.start, call.end, outcome,
        entity_id, version, None, began, ended, call.operation, 0.0, call.error, (), reads, events,
    )  # fmt: skip


def _kind(call: Call) -> str | None:
    return None if call.path is None else kind_of(call.path)


def _outcome(call: Call, wrote: bool) -> str:
    """Return what its client may say of the call; see :mod:`metastore.checker.records`."""
    if call.end is None:
        return "open"
    if call.error in _UNKNOWN:
        return "applied" if wrote and call.error in _SETTLED else "unknown"
    if call.error is not None:
        return "conflicted" if call.error in _GAVE_UP else "failed"
    return "read" if call.action in READS else "applied" if _says_it_wrote(call, wrote) else "nothing"


def _says_it_wrote(call: Call, wrote: bool) -> bool:
    if call.action in _RIGHTS:
        return wrote  # what the role had, or had not, is not changed
    if isinstance(call.answer, dict):
        return call.answer["by"] in (call.principal, call.user)
    return call.answer is not False


def _returned(call: Call) -> tuple[int | None, int | None]:
    if isinstance(call.answer, dict) and call.action not in ("transaction", "freeze"):
        return call.answer["id"], call.answer["version"]
    return None, None


def _named(call: Call, event: Placed) -> Iterator[Seen]:
    """Yield what its path meant just before a call wrote: the entity that it wrote."""
    if call.action in ("alter", "rename", "move", *DROPS) and call.path is not None:
        yield Seen(call.path, True, event.entity_id, event.version - 1)
