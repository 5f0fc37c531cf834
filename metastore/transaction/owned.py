"""The owned rows that a transaction sees: those that it wrote, and the others in the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metastore.port.backend import Reads
from metastore.port.conditions import LIVE, Absent, Listing
from metastore.port.records import OwnedRecord, all_pages
from metastore.port.writes import Delete, Put, Result
from metastore.transaction.reads import ReadSet

_PAGE = 1000


class OwnedOverlay:
    """The rows that a transaction wrote, by (owner, kind) and name; None: deleted.

    ``is_new`` says whether the transaction created an owner; the database has no rows of such an owner.
    """

    def __init__(self, base: Reads, reads: ReadSet, is_new: Callable[[int], bool]) -> None:
        self._base = base
        self._reads = reads
        self._is_new = is_new
        self._written: dict[tuple[int, str], dict[str, OwnedRecord | None]] = {}
        self._read: dict[tuple[int, str, str], OwnedRecord | None] = {}

    def write(self, write: Put | Delete, principal: str | None, now: int) -> Result:
        """Add a write to the overlay; the id of a new row is unknown until the commit."""
        rows = self._written.setdefault((write.owner_id, write.kind), {})
        if isinstance(write, Delete):
            rows[write.name] = None
        else:
            audit = (principal, now, principal, now)
            rows[write.name] = OwnedRecord(
                write.id, write.owner_id, write.kind, write.name, write.version + 1, write.doc, *audit
            )
        return Result(write.id, write.version + 1, now)

    def listing(self, owner_id: int, kind: str) -> list[OwnedRecord]:
        """Return an owner's rows, ordered by name, and note the database's rows as a listing."""
        rows = {} if self._is_new(owner_id) else {r.name: r for r in self._there(owner_id, kind)}
        for name, record in self._written.get((owner_id, kind), {}).items():
            rows.pop(name, None)
            if record is not None:
                rows[name] = record
        return [rows[name] for name in sorted(rows)]

    def _there(self, owner_id: int, kind: str) -> list[OwnedRecord]:
        def read(after: str) -> list[OwnedRecord]:
            return self._base.owned(owner_id, kind, after, _PAGE, ()).rows

        rows = list(all_pages(read, "", lambda row: row.name, _PAGE))
        members = frozenset((r.id, r.version) for r in rows)
        self._reads.listings.setdefault((owner_id, kind, True, LIVE), Listing(owner_id, kind, members, owned=True))
        return rows

    def by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        """Return the row of each (owner, name). Read each once, and note the row or its absence."""
        pairs = list(zip(owner_ids, names, strict=True))
        wanted = [(o, n) for o, n in pairs if (o, kind, n) not in self._read and not self._is_new(o)]
        stored = self._base.owned_by_name([o for o, _ in wanted], kind, [n for _, n in wanted]) if wanted else []
        self._read |= {(o, kind, n): record for (o, n), record in zip(wanted, stored, strict=True)}
        return [self._row(o, kind, n, self._read.get((o, kind, n))) for o, n in pairs]

    def _row(self, owner_id: int, kind: str, name: str, there: OwnedRecord | None) -> OwnedRecord | None:
        written = self._written.get((owner_id, kind), {})
        if name in written:
            return written[name]
        if there is not None:
            self._reads.owned.setdefault(there.id, there)
        elif not self._is_new(owner_id):
            self._reads.absent.add(Absent(owner_id, kind, name, owned=True))
        return there
