"""The relations that a transaction sees: those that it wrote, and the others in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from metastore.port.backend import Reads
from metastore.port.conditions import Relations
from metastore.port.records import all_pages
from metastore.port.relations import RelationKey, RelationRecord, incoming_order
from metastore.port.writes import Relate, Result
from metastore.transaction.reads import ReadSet

_PAGE = 1000


class RelationOverlay:
    """The relations that a transaction wrote, by key; None: removed.

    ``is_new`` says whether the transaction created an entity; the database has no relations of such an entity. Reads of
    the database are noted, and the commit validates them under an exclusive guard on the entity.
    """

    def __init__(self, base: Reads, reads: ReadSet, is_new: Callable[[int], bool]) -> None:
        self._base = base
        self._reads = reads
        self._is_new = is_new
        self._written: dict[RelationKey, RelationRecord | None] = {}
        self._in_slot: dict[tuple[str, int, int], dict[RelationKey, None]] = {}
        """The written relations' keys by slot, in the order of their first writes. A read scans only one slot."""
        self._read: dict[tuple[int, str, int | None, bool], list[RelationRecord]] = {}

    def write(self, write: Relate, principal: str | None, now: int) -> Result:
        """Add a write to the overlay; the id of a new relation is unknown until the commit."""
        key = write.key
        version = write.version + 1
        record = RelationRecord(*key, write.id, write.to_id, version, principal, now, principal, now)
        self._written[key] = None if write.removes else record
        self._in_slot.setdefault((write.kind, write.from_id, write.slot), {})[key] = None
        return Result(write.id, version, now)

    def in_slots(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        """Return the relations in these slots."""
        wanted = list(dict.fromkeys(slots))
        unknown = [(i, s) for i, s in wanted if (i, kind, s, False) not in self._read and not self._is_new(i)]
        stored: dict[tuple[int, int], list[RelationRecord]] = {slot: [] for slot in unknown}
        for row in self._base.relations(kind, unknown) if unknown else ():
            stored[row.from_id, row.slot].append(row)
        for (from_id, slot), rows in stored.items():
            self._note(from_id, kind, slot, rows)
        there = [row for i, s in wanted for row in self._read.get((i, kind, s, False), ())]
        written = [self._written[key] for i, s in wanted for key in self._in_slot.get((kind, i, s), ())]
        rows = [row for row in there if row.key not in self._written]
        return rows + [row for row in written if row is not None]

    def outgoing(self, from_id: int, kind: str) -> list[RelationRecord]:
        """Return all relations that go from an entity."""
        if (from_id, kind, None, False) not in self._read and not self._is_new(from_id):
            stored = self._base.related(from_id, kind, above=False, doc=False)
            self._note(from_id, kind, None, [] if stored is None else [row for row, _ in stored.rows])
        there = self._read.get((from_id, kind, None, False), ())
        return self._merged(there, lambda row: (row.from_id, row.kind) == (from_id, kind))

    def incoming(self, to_id: int, kind: str, after: tuple[str, int, int]) -> list[RelationRecord]:
        """Return the relations that lead to an entity, after a place in their index, in the index's order."""
        if (to_id, kind, None, True) not in self._read and not self._is_new(to_id):
            self._note(to_id, kind, None, list(self._all_incoming(to_id, kind)), incoming=True)
        there = self._read.get((to_id, kind, None, True), ())
        rows = self._merged(there, lambda row: (row.to_id, row.kind) == (to_id, kind))
        return sorted((row for row in rows if incoming_order(row) > after), key=incoming_order)

    def _all_incoming(self, to_id: int, kind: str) -> Iterable[RelationRecord]:
        def read(after: tuple[str, int, int]) -> list[RelationRecord]:
            page = self._base.relating(to_id, kind, None, after, _PAGE)
            return [] if page is None else [row for row, _, _ in page.rows]

        return all_pages(read, ("", 0, -1), incoming_order, _PAGE)

    def _note(
        self, entity_id: int, kind: str, slot: int | None, rows: list[RelationRecord], *, incoming: bool = False
    ) -> None:
        which = (entity_id, kind, slot, incoming)
        self._read[which] = rows
        members = frozenset((row.id, row.version) for row in rows)
        self._reads.relations[which] = Relations(entity_id, kind, members, slot, incoming)

    def _merged(
        self, there: Iterable[RelationRecord], wanted: Callable[[RelationRecord], bool]
    ) -> list[RelationRecord]:
        rows = [row for row in there if row.key not in self._written]
        return rows + [row for row in self._written.values() if row is not None and wanted(row)]
