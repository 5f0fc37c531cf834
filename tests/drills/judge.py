"""The verdict on a drill's record, without the cluster.

*Synchronous*: no acknowledged commit is lost, and none is applied twice; what is read through caches is in one order
with the writes; no two holders have the lease at once; no client of the store waits much longer than a bare one.
*Asynchronous*: a fail-over loses commits. These are counted, and what follows from them; what is wrong beside them is a
contradiction all the same. So is a token of a lease that was given twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from tests.cache.windows import Seen, not_linear
from tests.joints.judge.verdict import Word
from tests.progress.accounts import LOST, compared

__all__ = ["Verdict", "judged"]

_LONGER: Final = 1.1
"""How much longer than a bare client the store may be without service."""
_GRAIN: Final = 1.0
"""What may be added to that (seconds): both try again only from time to time, and the machine is shared."""

_TWO_LEADERS: Final = ("frozen",)
"""In these drills the old leader answers as well, until the cluster is whole.

A read may show a change of it whose call has not returned, and which is undone. A read that asks it may be stale.
A lease cache asks nobody, so that its reads must not be stale."""

Line = dict[str, Any]


@dataclass
class Verdict:
    """What the judge says of a drill."""

    kind: str
    mode: str
    found: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def word(self) -> Word:
        """``contradicted``, else ``unsure``, else ``clean``."""
        return "contradicted" if self.found else "unsure" if self.doubts else "clean"


class _Record:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: dict[str, Any] = json.loads((folder / "run.json").read_text())

    def calls(self, name: str) -> list[Line]:
        """Return the calls of a client that have ended, each as one line with its ``start`` and its ``end``."""
        begun: dict[int, Line] = {}
        for text in (self.folder / "journals" / f"{name}.jsonl").read_text().splitlines():
            line = json.loads(text)
            if "n" in line:
                begun[line["n"]] = begun.get(line["n"], {}) | line
        return [line for line in begun.values() if "end" in line]


def judged(folder: Path, *, synchronous: bool | None = None) -> Verdict:
    """Judge a record. ``synchronous``: as what; None: as what its cluster was."""
    record = _Record(folder)
    strict = record.told["synchronous"] if synchronous is None else synchronous
    verdict = Verdict(record.told["kind"], "synchronous" if strict else "asynchronous")
    verdict.found += record.told["wrong"]
    _commits(record, verdict, strict=strict)
    _reads(record, verdict, strict=strict)
    _leases(record, verdict, strict=strict)
    _feed(record, verdict)
    _service(record, verdict, strict=strict)
    return verdict


def _commits(record: _Record, verdict: Verdict, *, strict: bool) -> None:
    found, totals = compared(record.told["applied"], sorted((record.folder / "ledgers").iterdir()))
    lost = [one for one in found if one.endswith(LOST)]
    numbered = set(record.told["watched"])
    acknowledged = [line["value"] for line in record.calls("announcer") if line["ok"]]
    lost += [f"{value} of the announcer: {LOST}" for value in acknowledged if value not in numbered]
    twice = [value for value, times in Counter(record.told["watched"]).items() if times > 1]
    verdict.found += [one for one in found if not one.endswith(LOST)]
    verdict.found += [f"{value} of the announcer is applied twice" for value in twice]
    verdict.found += lost if strict else []
    bare = [line["value"] for line in record.calls("bare") if line["ok"]]
    verdict.figures["acknowledged"] = totals.get("ok", 0) + len(acknowledged)
    verdict.figures["unknown"] = totals.get("unknown", 0)
    verdict.figures["lost"] = len(lost)
    verdict.figures["bare acknowledged"] = len(bare)
    verdict.figures["bare lost"] = len(set(bare) - set(record.told["bare"]))


def _reads(record: _Record, verdict: Verdict, *, strict: bool) -> None:
    """Where writes may be lost, the order says nothing: then what is shown of lost writes is counted."""
    lines = [line for line in record.calls("announcer") if line["ok"]]
    writes = [Seen(0.0, 0.0, None), *(Seen(line["start"], line["end"], line["value"]) for line in lines)]
    there = {None, *record.told["watched"]}
    for name in ("validated", "leased"):
        reads = [Seen(line["start"], line["end"], line["value"]) for line in record.calls(name) if line["ok"]]
        later = sum(read.began > record.told["led"] for read in reads)
        verdict.figures[f"{name} reads"] = len(reads)
        if not later:
            verdict.doubts.append(f"{name}: no read after the fail-over")
        if strict:
            old = [read for read in reads if not_linear(writes, [read])]
            asked = [read for read in old if name == "validated" and _two_lead(record, read)]
            back = [read for read in not_linear(writes, reads) if read not in old]
            verdict.figures |= {f"{name} stale": len(old), f"{name} went back": len(back)}
            wrong = [read for read in old if read not in asked]
            verdict.found += [f"{name}: {read.value} was read, which is not the newest" for read in wrong[:3]]
            if verdict.kind not in _TWO_LEADERS:
                verdict.found += [f"{name}: {read.value} was read after a newer one" for read in back[:3]]
        else:
            after = [r for r in reads if r.began > record.told["whole"] and r.value not in there]
            verdict.figures[f"{name} of lost writes"] = len(after)


def _two_lead(record: _Record, read: Seen) -> bool:
    return record.told["kind"] in _TWO_LEADERS and record.told["began"] < read.began < record.told["whole"]


def _leases(record: _Record, verdict: Verdict, *, strict: bool) -> None:
    held = sorted(
        (line["start"], line["held"], line["token"], name)
        for name in ("holder1", "holder2")
        for line in record.calls(name)
    )
    both = [f"{one[3]} and {two[3]} held the lease at once" for one, two in pairwise(held) if two[0] < one[1]]
    highest = accumulate((token for _, _, token, _ in held), max)
    back = [f"the token {now[2]} came after {top}" for now, top in zip(held[1:], highest, strict=False) if now[2] < top]
    times = Counter(token for _, _, token, _ in held)
    again = [f"the token {token} was given {n} times" for token, n in times.items() if n > 1]
    verdict.figures |= {"leases": len(held), "held twice": len(both), "tokens again": len(again)}
    verdict.found += again + (both + back if strict else [])
    if not any(start > record.told["led"] for start, *_ in held):
        verdict.doubts.append("nobody held the lease after the fail-over")


def _feed(record: _Record, verdict: Verdict) -> None:
    """The consumer sees what is there, each change once, in order, up to where it ends.

    The feed shows what can be read, also on a leader that is none any more: commits that a fail-over undoes. Where the
    consumer saw some, the store must refuse its position, so that it begins again.
    """
    polls = record.calls("consumer")
    feed = list(map(_place, record.told["feed"]))
    seen = [_place(position) for poll in polls for position in poll["read"]]
    refused = [n for n, poll in enumerate(polls) if poll["refused"]]
    last = [_place(one) for poll in polls[refused[-1] + 1 if refused else 0 :] for one in poll["read"]]
    gone = set(seen) - set(feed)
    verdict.figures |= {"events": len(last), "events undone": len(gone), "positions refused": len(refused)}
    if last != feed[: len(last)]:
        verdict.found.append("the consumer did not see the feed as it is")
    if not last:
        verdict.doubts.append("the consumer saw nothing")


def _place(position: str) -> str:
    """Return a position without the epoch, which says on which server's timeline it was given."""
    return position.rpartition("-")[2]


def _service(record: _Record, verdict: Verdict, *, strict: bool) -> None:
    """The longest time between two answers, of one client of the store, and of the bare one."""
    ours, bare = (max(_waits(record.calls(name)), default=0) / 1e9 for name in ("announcer", "bare"))
    verdict.figures |= {"without service": round(ours, 1), "bare without service": round(bare, 1)}
    if strict and ours > _LONGER * bare + _GRAIN:
        verdict.found.append(f"{ours:.1f} s without service; a bare client was for {bare:.1f} s")


def _waits(calls: Sequence[Line]) -> Iterator[int]:
    ends = [line["end"] for line in calls if line["ok"]]
    yield from (two - one for one, two in pairwise(ends))
