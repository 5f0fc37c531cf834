"""Read an entity and rows that it owns in several reads, for layers over a database such as a cache."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.port.backend import Reads
from metastore.port.records import Lookup
from metastore.port.relations import Owning, end_of_known


def read_owning(reads: Reads, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
    """Return the result of :meth:`~metastore.port.backend.Reads.owning`, made from other reads."""
    if not isinstance(target, int):
        record = reads.resolve([target])[0].record
        if record is None:
            return None
        target = record.chain[-1].id
    (known,) = reads.by_id([target])
    if known is None:
        return None
    found = [row for kind in kinds for row in reads.owned_by_name([target] * len(names), kind, names)]
    return Owning(end_of_known(known), [row for row in found if row is not None])
