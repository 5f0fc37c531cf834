"""Keep the entities that the last batch altered, so that the next batch begins with them without a read.

If all requests alter one entity, batches follow each other. A read between them would take as long as the commit, and
let another process commit meanwhile. A kept record is a guess: the commit checks guards, place and version, as it does
for a loaded entity. No caller gets an error that rests on a guess; the full operation reads again.
"""

from __future__ import annotations

from collections.abc import Iterable

from metastore.combine.waiting import Waiting
from metastore.kinds.registry import kind_named
from metastore.operation.guards import key_under
from metastore.port.records import ROOT, Record

Name = tuple[int, str, str]


class LastBatch:
    """The records that the last batch left. If two leaders use it at once, the worst result is a wrong guess."""

    def __init__(self) -> None:
        self._records: dict[Name, Record] = {}
        self._run: str | None = None

    def guess(self, requests: Iterable[Waiting[object]], run: str | None) -> None:
        """Let alters by path begin with the records that the last batch left, if the server was not restarted since."""
        if run != self._run:
            return
        for one in requests:
            if one.record is None and one.below is not None and one.request.verb == "alter":
                parents = one.below.parents
                record = self._records.get(((parents[-1] if parents else ROOT).id, one.below.family, one.below.key))
                if record is not None and record.chain[:-1] == parents:
                    one.record = record

    def note(self, left: Iterable[Record], run: str | None) -> None:
        """Keep these entities as a batch left them, and nothing of earlier batches."""
        self._records, self._run = {_name(record): record for record in left}, run


def _name(record: Record) -> Name:
    """Return the path by the record itself; the path that led to the entity may be an old one."""
    *_, parent, node = (ROOT, *record.chain)
    return parent.id, kind_named(node.kind).family, key_under(parent, node.name)
