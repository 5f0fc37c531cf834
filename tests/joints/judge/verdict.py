"""The verdict on one run: contradictions, doubts, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tests.joints.judge.documents import never_committed
from tests.joints.judge.errors import untrue_errors
from tests.joints.judge.evidence import Evidence, Found
from tests.joints.judge.following import skipped
from tests.joints.judge.order import contradictions
from tests.joints.judge.places import misplaced
from tests.joints.judge.rights import unlawful
from tests.joints.judge.stuck import stuck
from tests.joints.judge.times import untimely
from tests.joints.judge.whole import counted, doubts

__all__ = ["EXIT", "Verdict", "Word", "judged"]

Word = Literal["clean", "unsure", "contradicted"]
EXIT: Final[dict[Word, int]] = {"clean": 0, "contradicted": 1, "unsure": 2}
"""The exit codes."""


_LARGEST: Final = 48 << 20
"""More than a session of the server needs for itself, whatever it does (bytes)."""


@dataclass(frozen=True)
class Verdict:
    """What the judge says of a run."""

    found: tuple[Found, ...]
    doubts: tuple[str, ...]
    calls: int
    events: int
    counts: dict[str, int]

    @property
    def word(self) -> Word:
        """``contradicted``, else ``unsure``, else ``clean``."""
        return "contradicted" if self.found else "unsure" if self.doubts else "clean"

    @property
    def rules(self) -> dict[str, int]:
        """How many contradictions each rule found."""
        return dict(Counter(one.rule for one in self.found))

    def as_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {"verdict": self.word, "rules": self.rules, **asdict(self)}


def judged(folder: Path, needed: Iterable[str] = ()) -> Verdict:
    """Judge a record folder. ``needed``: what the run must have contained."""
    evidence = Evidence.of(folder)
    found = sorted(_found(evidence), key=lambda one: one.at)
    counts = dict(sorted(counted(evidence).items()))
    return Verdict(tuple(found), tuple(doubts(evidence, needed)), len(evidence.calls), len(evidence.events), counts)


def _found(evidence: Evidence) -> Iterator[Found]:
    yield from contradictions(evidence)
    yield from misplaced(evidence)
    yield from never_committed(evidence)
    yield from untimely(evidence)
    yield from untrue_errors(evidence)
    yield from stuck(evidence)
    yield from skipped(evidence)
    yield from unlawful(evidence)
    for event in evidence.events:
        if event.seq > evidence.since and event.seq not in evidence.writer:
            yield Found("nobody", f"no call wrote this: {event}")
    if (largest := evidence.run["largest"]) > _LARGEST:
        yield Found("memory", f"a process of the server has {largest >> 20} MiB for itself")
    yield from (Found("verify", violation) for violation in evidence.violations)
    yield from (Found("end", wrong) for wrong in evidence.run["wrong"])
