"""What the last batch left of the entities that it altered: the next batch begins with that, without a read.

Where all alter one entity, a batch comes right after the other. A read between them takes as long as the commit, and
lets another process commit meanwhile. What is kept is a guess: the commit checks guards, place and version, as of an
entity in hand. An error that rests on it is not told; the full operation looks again.
"""

from __future__ import annotations

from collections.abc import Iterable

from metastore.combine.waiting import Waiting
from metastore.port.batches import Below
from metastore.port.records import ROOT, Record

__all__ = ["LastBatch"]

Name = tuple[int, str, str]


class LastBatch:
    """See the module. Used by one leader after the other; two at once can only guess wrongly."""

    def __init__(self) -> None:
        self._records: dict[Name, Record] = {}

    def guess(self, requests: Iterable[Waiting[object]]) -> None:
        """Let alters by path begin with what the last batch left."""
        for one in requests:
            if one.record is None and one.below is not None and one.request.verb == "alter":
                record = self._records.get(_name(one.below))
                if record is not None and record.chain[:-1] == one.below.parents:
                    one.record = record

    def note(self, left: Iterable[tuple[Below, Record]]) -> None:
        """Keep what a batch left of the entities at these places, and nothing of earlier batches."""
        self._records = {_name(place): record for place, record in left}


def _name(place: Below) -> Name:
    return (place.parents[-1] if place.parents else ROOT).id, place.family, place.key
