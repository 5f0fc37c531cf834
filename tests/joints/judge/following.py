"""Rule: a client that follows the change feed gets every change once, in the order of the feed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.joints.judge.evidence import Evidence, Found

__all__ = ["skipped"]


def skipped(evidence: Evidence) -> Iterator[Found]:
    """Yield each page of the feed that has another change next than the feed has at the end."""
    behind = dict(pairwise((None, *map(_place, evidence.positions))))
    for call in evidence.calls:
        if call.action != "changes" or call.error is not None or call.end is None:
            continue
        begin = None if call.after is None else _place(call.after)
        for before, position in pairwise((begin, *map(_place, call.answer))):
            if behind.get(before) != position:
                message = f"behind {before} it read {position}, and the feed has {behind.get(before)}"
                yield evidence.found("feed", message, call)
                break


def _place(position: str) -> str:
    """Return a position without the epoch, which says on which server's timeline it was given."""
    return position.rpartition("-")[2]
