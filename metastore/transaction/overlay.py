"""A transaction's view: its own writes, and the database without the rows that they replace.

An :class:`Overlay` implements :class:`metastore.port.backend.Reads`, so the same managers work on it as on a backend.
It passes reads on to the backend and notes them for validation. It sends no commit, but adds each one to itself.
:meth:`Overlay.commit_value` turns them all into one commit. The writes of each operation stay separate: an entity that
is written twice gets two more versions.

The commit validates an entity by its version, and the path to it by shared guards. It validates a name or a listing by
an exclusive guard on the parent, and reads it again under that guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from metastore.clock import Clock
from metastore.deadlines import GRACE, cleaning
from metastore.errors import InvalidArgument, MetastoreError
from metastore.operation.dropping import dropping_named
from metastore.operation.request import Results
from metastore.port.backend import Backend, Guards, Reads
from metastore.port.commit import Commit, CommitOutcome, Committed
from metastore.port.conditions import LIVE
from metastore.port.owning import read_owning
from metastore.port.records import Child, Known, Lookup, Node, Origin, OwnedRecord, Record, Resolved, RowPage, Step
from metastore.port.relations import Owning, Related, Relating, RelationRecord, end_of_known, outgoing_order
from metastore.port.writes import Insert, Relate, Result, Update, Write
from metastore.transaction.changed import Changed, changed
from metastore.transaction.drafts import Draft, Drafts
from metastore.transaction.entities import EntityOverlay, Meet
from metastore.transaction.listings import ListingOverlay
from metastore.transaction.owned import OwnedOverlay
from metastore.transaction.reads import ReadSet
from metastore.transaction.relations import RelationOverlay

_IDS, _MOST_IDS = 32, 1000


class Overlay(Reads):
    """The reads and the commit of a backend, on top of another backend: see the module's docstring."""

    def __init__(self, base: Backend, clock: Clock, principal: str | None, meet: Meet | None) -> None:
        self._base = base
        self._clock = clock
        self._principal = principal
        here = base.origin  # read first: if the server restarts during the attempt, its later run differs
        self._origin = Origin(here.database, committed=False, run=here.run, drafted=True)
        self._reads = ReadSet()
        self._drafts = Drafts()
        self.entities = EntityOverlay(base, self._reads, self._drafts, meet)
        self._listings = ListingOverlay(base, self._reads, self._drafts, self.entities)
        self._owned = OwnedOverlay(base, self._reads, self._drafts.is_new)
        self._relations = RelationOverlay(base, self._reads, self._drafts.is_new)
        self._writes: list[Write] = []
        self._ids: list[int] = []
        self.looked_back = False
        """Whether a history was read: the commit does not validate such reads."""

    @property
    def origin(self) -> Origin:
        """The origin of all entities that the transaction returns: uncommitted until the commit."""
        return self._origin

    def identify(self) -> Origin:
        return self._base.identify()

    def committed(self, results: Results | None) -> None:
        """Note that all entities that the transaction returned are committed; ``results``: the known results."""
        self.origin.committed = True
        if results is not None:
            self.origin.written_at = max([one.time for one in results if one is not None], default=0)
            return
        with cleaning(self._clock.monotonic() + GRACE), suppress(MetastoreError):
            self.origin.written_at = self._base.now()  # the answer was lost; the commit was applied before now

    @property
    def is_old(self) -> bool:
        """Whether the server was restarted since the block's reads. It may have lost the rows that were read."""
        return self._origin.run != self._base.origin.run

    def commit_value(self, operation_id: UUID, *, writes: bool) -> Commit:
        """Return all reads and writes as one commit; without ``writes``, only the reads."""
        written = self._writes if writes else ()
        commit = self._reads.commit(operation_id, self._principal, written, lambda i: self._drafts[i].family)
        return replace(commit, run=self._origin.run)

    def require(self, entity_id: int, scope_version: int) -> None:
        """Note a scope that the transaction has frozen: its commit always guards this scope."""
        self._reads.guards[entity_id] = scope_version

    def changed(self, shown: Reads | None = None) -> Changed | None:
        """Return the entity that has changed since it was read or written, after a conflict; None: no entity has.

        ``shown``: the reads that the user may see; the error names no other entity.
        """
        expected = dict(self._reads.entities)
        for write in self._writes:
            if isinstance(write, Update) and not self._drafts.is_new(write.id):
                expected.setdefault(write.id, write.version)
        guards = dict(self._reads.guards)
        if shown is not None:
            ids = [*{**expected, **guards}]
            hidden = {i for i, known in zip(ids, shown.by_id(ids), strict=True) if known is None}
            expected = {i: version for i, version in expected.items() if i not in hidden}
            guards = {i: scope for i, scope in guards.items() if i not in hidden}
        return changed(self._base, expected, guards, self.entities.name)

    def commit(self, commit: Commit) -> CommitOutcome:
        """Add a commit to the overlay."""
        if commit.principal != self._principal:
            raise InvalidArgument("a transaction has only one principal; give it to transaction() or run()")
        for guard in commit.guards:
            self.entities.note_guard(guard.id, guard.scope_version)
            if guard.bump and not self._drafts.is_new(guard.id):
                self._reads.bumped.add(guard.id)
        now = self._clock.micros()
        return Committed(tuple(self._write(w, now, commit.skip_existing) for w in commit.writes))

    def _write(self, write: Write, now: int, skip_existing: bool) -> Result | None:
        if isinstance(write, Insert):
            if skip_existing and self.entities.child(write.parent_id, write.family, write.key) is not None:
                return None
            return self._insert(write, now)
        if isinstance(write, Update):
            return self._update(write, now)
        if isinstance(write, Relate) and skip_existing and self._is_there(write):
            return None
        self._note_write(write)
        if isinstance(write, Relate):
            return self._relations.write(write, self._principal, now)
        return self._owned.write(write, self._principal, now)

    def _insert(self, write: Insert, now: int) -> Result:
        entity_id = self._next_id() if write.id is None else write.id
        node = Node(entity_id, write.kind, write.name, 1, True, write.fold)
        record = Record((node,), 1, write.doc, self._principal, now, self._principal, now)
        self._drafts[entity_id] = Draft(node, write.parent_id, write.family, write.key, LIVE, record, new=True)
        self._note_write(replace(write, id=entity_id))
        return Result(entity_id, 1, now)

    def _update(self, write: Update, now: int) -> Result:
        draft = self.entities.draft(write.id)
        if write.place is not None:
            draft.parent_id, draft.key = write.place.parent_id, write.place.key
            draft.node = draft.node._replace(name=write.place.name, fold=write.place.fold)
        if write.state is not None:
            draft.state = write.state
        if write.in_use is not None:
            draft.node = draft.node._replace(in_use=write.in_use)
        if write.scope_version is not None:
            draft.node = draft.node._replace(scope_version=write.scope_version + 1)
        draft.record = draft.record._replace(
            version=write.version + 1,
            doc=draft.record.doc if write.doc is None else write.doc,
            modified_by=self._principal,
            modified_at=now,
        )
        self._drafts[write.id] = draft
        self._note_write(write)
        return Result(write.id, write.version + 1, now)

    def _note_write(self, write: Write) -> None:
        self._writes.append(write)
        self._listings.forget()

    def _next_id(self) -> int:
        if not self._ids:
            self._ids = self._base.reserve_ids(min(_MOST_IDS, max(_IDS, len(self._writes))))[::-1]
        return self._ids.pop()

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        return self.entities.resolve(lookups)

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return self.entities.by_id(ids)

    def hold(self, guards: Guards) -> bool:
        """Return True: the commit validates the guards."""
        return True

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        return self._listings.has_children(entity_id, besides)

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        return self._listings.children(parent_id, kind, family, state, after, limit)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        return self._listings.names(parent_id, kind, family, after, limit)

    def named(self, parent_id: int, family: str, key: str, guards: Guards) -> RowPage[Child]:
        return dropping_named(self.children, parent_id, family, key)

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        return self._listings.gone(parent_id, kind, family, key)

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        self.looked_back = True
        return self._base.history(entity_id, after, limit)

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        return RowPage(True, [r for r in self._owned.listing(owner_id, kind) if r.name > after][:limit])

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        return self._owned.by_name(owner_ids, kind, names)

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        return read_owning(self, target, kinds, names)

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        if not isinstance(target, int):
            record = self.resolve([target])[0].record
            if record is None:
                return None
            target = record.chain[-1].id
        (known,) = self.by_id([target])
        if known is None:
            return None
        froms = [n.id for n in known.record.chain] if above else [target]
        rows = [row for from_id in froms for row in self._relations.outgoing(from_id, kind)]
        ends = [end_of_known(k) for k in self.by_id([row.to_id for row in rows])]
        return Related(end_of_known(known), known.record.doc if doc else None, list(zip(rows, ends, strict=True)))

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        (known,) = self.by_id([to_id])
        if known is None:
            return None
        rows = [r for r in self._relations.incoming(to_id, kind, after) if value in (None, r.value)][:limit]
        froms = self.by_id([row.from_id for row in rows])
        docs = [k.record.doc if k is not None and row.column_id else None for row, k in zip(rows, froms, strict=True)]
        ends = [end_of_known(k) for k in froms]
        return Relating(end_of_known(known), list(zip(rows, ends, docs, strict=True)))

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        (known,) = self.by_id([from_id])
        if known is None:
            return None
        rows = sorted(row for row in self._relations.outgoing(from_id, kind) if outgoing_order(row) > after)[:limit]
        ends = self.by_id([row.to_id for row in rows])
        return Relating(
            end_of_known(known), [(row, end_of_known(end), None) for row, end in zip(rows, ends, strict=True)]
        )

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        return self._relations.in_slots(kind, slots)

    def _is_there(self, write: Relate) -> bool:
        there = self._relations.in_slots(write.kind, [(write.from_id, write.slot)])
        return any((row.column_id, row.value) == (write.column_id, write.value) for row in there)
