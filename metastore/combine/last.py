"""Keep the entities that the last batch altered, so that the next batch begins with them, without a read.

If all requests alter one entity, one batch follows the other. A read between them would take as long as the commit, and
let another process commit meanwhile. A kept record is a guess: the commit checks guards, place and version, as for an
entity in hand. An error that rests on a guess reaches no caller; the full operation looks again.
"""

from __future__ import annotations

from collections.abc import Iterable

from metastore.combine.waiting import Waiting
from metastore.port.batches import Below
from metastore.port.records import ROOT, Record

__all__ = ["LastBatch"]

Name = tuple[int, str, str]


class LastBatch:
    """The records that the last batch left. One leader after the other uses it; two at once can only guess wrongly."""

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
