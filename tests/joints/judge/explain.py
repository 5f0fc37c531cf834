"""Explain a call that saw an outdated state: when it was true, which call ended it, and why that came before.

So a reader needs two or three lines: the call that made the change, perhaps a call that saw the change and had
returned, and the call that still saw the old state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from metastore.checker.finding import Finding
from metastore.checker.records import Seen
from metastore.checker.tree import Placed
from tests.joints.judge.call import Call
from tests.joints.judge.dating import Dated, date
from tests.joints.judge.evidence import Evidence, Found
from tests.joints.judge.seen import seen

__all__ = ["explained"]

_READ: Final = "read"
_MOST: Final = 20
"""How many findings are explained: each thing that they are about is compared with every position."""


def explained(evidence: Evidence, findings: Sequence[Finding], placed: Sequence[Placed]) -> Iterator[Found]:
    """Yield the findings of the checker, with the calls that they are about; one for each call that saw something."""
    calls = {call.principal: call for call in evidence.calls}
    reads: dict[str, Finding] = {}
    for finding in findings:
        names = [line.partition(":")[0].partition(" made ")[0] for line in finding.operations]
        about = [calls[name] for name in names if name in calls]
        if about and finding.rule in ("read", "cycle"):
            reads.setdefault(about[-1].principal, finding)
        elif about:
            yield evidence.found(finding.rule, finding.message, *about)
        else:
            yield Found(finding.rule, finding.message, finding.operations)
    dated = {name: [Dated(calls[name], one) for one in seen(calls[name])] for name in list(reads)[:_MOST]}
    date([one for some in dated.values() for one in some], placed)
    for name, finding in reads.items():
        if dated.get(name):
            yield _explained(evidence, finding, min(dated[name], key=_until), placed)
        else:
            yield evidence.found(_READ, finding.message, calls[name])


def _until(one: Dated) -> float:
    """Return until when something was true: of several things that a call saw, the oldest is the one in doubt."""
    last = one.times[-1][1] if one.times else 0
    return float("inf") if last is None else last


def _explained(evidence: Evidence, finding: Finding, one: Dated, placed: Sequence[Placed]) -> Found:
    what, call, writer = _text(one.seen), one.call, evidence.writer
    if not one.times:
        return evidence.found(_READ, f"it saw {what}, which was never so", call)
    visible = [until for since, until in one.times if _could_be_seen(writer.get(since), call)]
    if not visible:
        first = one.times[0][0]
        message = f"it saw {what}, which was so only from {first} on, later than the call"
        return evidence.found(_READ, message, call, writer.get(first))
    ended = visible[-1]
    if ended is None:  # each of several things that it saw was true for itself
        return evidence.found(_READ, finding.message, call)
    message = f"it saw {what}, which was so until {ended}; that was over before it was called"
    return evidence.found(_READ, message, writer.get(ended), _witness(evidence, ended, call, placed), call)


def _could_be_seen(writer: Call | None, call: Call) -> bool:
    return writer is None or call.end is None or writer.start <= call.end


def _witness(evidence: Evidence, ended: int, call: Call, placed: Sequence[Placed]) -> Call | None:
    """Return the call that shows that a change was made before ``call`` began; None: the change's own call does."""
    ender = evidence.writer.get(ended)
    if ender is not None and ender.end is not None and ender.end < call.start and ender.error is None:
        return None
    since = 0 if ender is None else ender.start
    before = [one for one in evidence.calls if one.end is not None and since < one.end < call.start]
    for one in before:
        if any(event.seq > ended for event in evidence.written.get(one.principal, ())):
            return one
    saw = [Dated(one, about) for one in before[-_MOST:] for about in seen(one)]
    date(saw, placed)
    return next((one.call for one in saw if one.times and one.times[0][0] >= ended), None)


def _text(seen: Seen) -> str:
    if seen.of is not None:
        what = "children" if seen.of == "children" else "something dropped that can be restored"
        return f"that {seen.path} has {'' if seen.there else 'no '}{what}"
    if not seen.there:
        return f"that {seen.path} was not there"
    version = "" if seen.version is None else f" at version {seen.version}"
    return f"{seen.path}{'' if seen.entity_id is None else f' as entity {seen.entity_id}'}{version}"
