"""Say of a call that saw what was not true: when it was true, which call ended that, and why that was before.

So a reader needs two or three lines: the call that changed it, perhaps a call that saw the change and had returned, and
the call that still saw what was before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from metastore.checker.finding import Finding
from metastore.checker.records import Seen
from metastore.checker.tree import CHILDREN, DROPPED, Placed
from metastore.kinds.families import families_of
from metastore.kinds.registry import kind_named
from metastore.names import parse_path
from metastore.port.conditions import ROOT_ID
from tests.joints.judge.call import Call
from tests.joints.judge.evidence import Evidence, Found
from tests.joints.judge.seen import seen

__all__ = ["explained"]

_MOST: Final = 60
"""How many findings are explained: each is compared with every position."""


@dataclass
class _Doubted:
    """One thing that a call saw, and the positions from and until which it was true."""

    finding: Finding
    call: Call
    seen: Seen
    times: list[list[int | None]] = field(default_factory=list)


def explained(evidence: Evidence, findings: Sequence[Finding], placed: Sequence[Placed]) -> Iterator[Found]:
    """Yield the findings of the checker, with the calls that they are about."""
    calls = {call.principal: call for call in evidence.calls}
    doubted, plain = list[_Doubted](), list[Finding]()
    for finding in findings:
        call = calls.get(finding.operations[-1].partition(":")[0]) if finding.operations else None
        if call is not None and finding.rule in ("read", "cycle") and len(doubted) < _MOST:
            doubted += [_Doubted(finding, call, one) for one in seen(call)]
        else:
            plain.append(finding)
    _date(doubted, placed)
    for finding in plain:
        yield Found(finding.rule, finding.message, tuple(_lines(finding, evidence, calls)))
    for finding in dict.fromkeys(one.finding for one in doubted):
        about = [one for one in doubted if one.finding is finding]
        worst = min(about, key=lambda one: (_last(one) is not None, one.times[-1][1] or 0 if one.times else 0))
        yield _explained(evidence, worst, placed)


def _lines(finding: Finding, evidence: Evidence, calls: dict[str, Call]) -> Iterator[str]:
    """Return a line about each call of a finding: the checker names them by their principals."""
    for line in finding.operations:
        call = calls.get(line.partition(":")[0].partition(" made ")[0])
        yield line if call is None else evidence.line(call)


def _date(doubted: Sequence[_Doubted], placed: Sequence[Placed]) -> None:
    """Find out when each thing was true: one replay for all of them."""
    world = _World()
    for event in placed:
        world.apply(event)
        for one in doubted:
            open_ = bool(one.times) and one.times[-1][1] is None
            if world.shows(one.seen) != open_:
                if open_:
                    one.times[-1][1] = event.seq
                else:
                    one.times.append([event.seq, None])


class _World:
    """What the names and the versions are at one position."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str, str], int | None] = {}
        self._versions: dict[int, int | None] = {}

    def apply(self, event: Placed) -> None:
        self._versions[event.entity_id] = None if event.gone else event.version
        for name in event.names:
            self._names[name.parent_id, name.family, name.name] = name.entity_id

    def shows(self, seen: Seen) -> bool:
        here = self._find(seen)
        if here is None or not seen.there:
            return here is None and not seen.there
        return seen.entity_id in (None, here) and seen.version in (None, self._versions.get(here))

    def _find(self, seen: Seen) -> int | None:
        names = parse_path(seen.path or "")
        families = families_of(kind_named(seen.kind or "table"), len(names)) or ("",) * len(names)
        steps = list(zip(families, names, strict=True))
        if seen.of == "dropped":
            steps[-1] = (f"{DROPPED}{seen.kind}", names[-1])
        elif seen.of == "children":
            steps.append((CHILDREN, ""))
        here: int | None = ROOT_ID
        for family, name in steps:
            here = None if here is None else self._names.get((here, family, name))
        return here


def _last(one: _Doubted) -> int | None:
    """Return the last position at which it was true; None: it is true at the end."""
    return one.times[-1][1] if one.times else 0


def _explained(evidence: Evidence, one: _Doubted, placed: Sequence[Placed]) -> Found:
    mine, what = evidence.line(one.call), _text(one.seen)
    before = [until for began, until in one.times if _could_see(evidence, began, one.call)]
    if not one.times:
        return Found(one.finding.rule, f"it saw {what}, which was never so", (mine,))
    if not before:
        began = evidence.writer.get(one.times[0][0] or 0)
        message = f"it saw {what}, which was so only from {one.times[0][0]} on, later than the call"
        return Found(one.finding.rule, message, (mine, *([evidence.line(began)] if began else [])))
    ended = before[-1]
    if ended is None:  # one of several statements of a call, or an order that no single statement shows
        return Found(one.finding.rule, one.finding.message, (mine,))
    ender = evidence.writer.get(ended)
    message = f"it saw {what}, which was so until {ended}; that was over before it was called"
    witness = _witness(evidence, ended, one.call, ender)
    others = [evidence.line(call) for call in (ender, witness) if call is not None]
    return Found(one.finding.rule, message, (*others, mine))


def _could_see(evidence: Evidence, began: int | None, call: Call) -> bool:
    writer = evidence.writer.get(began or 0)
    return writer is None or call.end is None or writer.start <= call.end


def _witness(evidence: Evidence, ended: int, call: Call, ender: Call | None) -> Call | None:
    """Return the call that shows that a change was made before ``call`` began; None: the change's own call does."""
    if ender is not None and ender.end is not None and ender.end < call.start and ender.error is None:
        return None
    after = (evidence.writer[seq] for seq in sorted(evidence.writer) if seq > ended)
    return next((one for one in after if one.end is not None and one.end < call.start and one.error is None), None)


def _text(seen: Seen) -> str:
    if seen.of is not None:
        what = "children" if seen.of == "children" else "something dropped that can be restored"
        return f"that {seen.path} has {'' if seen.there else 'no '}{what}"
    if not seen.there:
        return f"that {seen.path} was not there"
    version = "" if seen.version is None else f" at version {seen.version}"
    return f"{seen.path}{'' if seen.entity_id is None else f' as entity {seen.entity_id}'}{version}"
