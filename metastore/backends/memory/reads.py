"""Read from the reference model: each read walks over all rows, under the lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from uuid import UUID

from metastore.backends.memory import relations
from metastore.backends.memory.commit import newest_dropped
from metastore.backends.memory.find import find, sizes
from metastore.backends.memory.rights import rights
from metastore.backends.memory.tables import TAKEN, MemorySnapshot, Stand, Tables
from metastore.clock import Clock
from metastore.names import fold
from metastore.port.backend import Guards
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.records import ROOT, Child, Known, Lookup, Node, OwnedRecord, Record, Resolved, RowPage, Step
from metastore.port.relations import Owning, Related, Relating, RelationRecord, end_of_known
from metastore.port.rights import Chosen, RightRows, Whose
from metastore.port.search import Matches, Search, Sizes, Span
from metastore.port.snapshot import TableSnapshot, Watermark
from metastore.port.touched import Touch, Touched
from metastore.port.unreadable import DEEPEST, too_deep


class MemoryReads:
    """The reading half of the backend."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # this lock runs one call at a time, in place of a real database's transactions
        self._lock: AbstractContextManager[Any] = threading.RLock()
        above_all = -1
        root = Stand(ROOT_ID, above_all, "root", "root", "", "", False, LIVE, True, ROOT.scope_version, None)
        self._tables = Tables({ROOT_ID: root})
        self._epoch = f"{clock.micros():014x}"
        self._collected = 0

    def rights(self, whose: Whose, places: Sequence[int], below: int | None) -> RightRows:
        with self._lock:
            return rights(self._tables, whose, places, below)

    def resolve_rights(self, lookup: Lookup, user: str) -> tuple[Resolved, RightRows]:
        with self._lock:
            found = self._follow(lookup)
            ids = [node.id for node in found.nodes]
            return found, rights(self._tables, Whose(ids[0], user), ids, None) if ids else RightRows([], [], [], [])

    def resolve_holding(self, lookup: Lookup, guards: Guards) -> tuple[Resolved, bool]:
        with self._lock:
            return self._follow(lookup), self._held(guards)

    def by_id_holding(self, ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        with self._lock:
            return [self._known(i) for i in ids], self._held(guards)

    def children_chosen(
        self,
        parent_id: int,
        kind: str,
        family: str,
        state: int,
        after: tuple[str, int],
        limit: int,
        guards: Guards,
        chosen: Chosen,
    ) -> RowPage[Child]:
        with self._lock:
            every = len(self._tables.stands)
            page = self.children(parent_id, kind, family, state, after, every, guards)
            rows = [row for row in page.rows if (row.node.id in chosen.ids) == chosen.only]
            return RowPage(page.held, rows[:limit])

    def names_chosen(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards, chosen: Chosen
    ) -> RowPage[tuple[str, str]]:
        with self._lock:
            page = self.children_chosen(parent_id, kind, family, LIVE, (after, 0), limit, guards, chosen)
            return RowPage(page.held, [(child.key, child.node.name) for child in page.rows])

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        with self._lock:
            return [self._follow(lookup) for lookup in lookups]

    def _follow(self, lookup: Lookup) -> Resolved:
        nodes: list[Node] = []
        above = lookup.start
        for family, name in zip(lookup.families, lookup.names, strict=True):
            stand = self._tables.live_child(above.id, family, fold(name) if above.fold else name)
            if stand is None:
                return Resolved(tuple(nodes), None)
            above = stand.node
            nodes.append(above)
        return Resolved(tuple(nodes), Record(tuple(nodes), *self._tables.bodies[above.id]))

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        with self._lock:
            return [self._known(i) for i in ids]

    def nodes(self, ids: Sequence[int]) -> dict[int, tuple[Node, ...]]:
        return {i: row.record.chain for i, row in zip(ids, self.by_id(ids), strict=True) if row is not None}

    def _known(self, entity_id: int) -> Known | None:
        if entity_id not in self._tables.bodies:
            return None
        chain: list[Stand] = []
        at = entity_id
        while at != ROOT_ID:
            chain.append(self._tables.stands[at])
            at = chain[-1].parent_id
            if len(chain) > DEEPEST:
                raise too_deep(chain[0].kind, entity_id)
        chain.reverse()
        record = Record(tuple([s.node for s in chain]), *self._tables.bodies[entity_id])
        return Known.of(record, [s.state for s in chain])

    def hold(self, guards: Guards) -> bool:
        with self._lock:
            return self._held(guards)

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        with self._lock:
            return any(s.state in TAKEN and s.id not in besides for s in self._tables.children(entity_id))

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        with self._lock:
            wanted = (kind, family, state)
            stands = [s for s in self._tables.children(parent_id) if (s.kind, s.family, s.state) == wanted]
            # live names are unique, so the key alone shows where the next page begins
            later = [s for s in stands if (s.key > after[0] if state == LIVE else (s.key, s.id) > after)]
            rows = [self._child(s) for s in sorted(later, key=lambda s: (s.key, s.id))]
            return RowPage(True, rows[:limit]) if self._held(guards) else RowPage(False, [])

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        with self._lock:
            page = self.children(parent_id, kind, family, LIVE, (after, 0), limit, guards)
            return RowPage(page.held, [(child.key, child.node.name) for child in page.rows])

    def find(self, search: Search) -> Matches:
        with self._lock:
            return find(self._tables, search, self._known)

    def search_sizes(self, span: Span, most: Sizes) -> Sizes:
        with self._lock:
            return sizes(self._tables, span, most)

    def named(self, parent_id: int, family: str, key: str, guards: Guards) -> RowPage[Child]:
        with self._lock:
            stand = self._tables.child_named(parent_id, family, key, TAKEN)
            rows = [] if stand is None else [self._child(stand)]
            return RowPage(True, rows) if self._held(guards) else RowPage(False, [])

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        with self._lock:
            last = newest_dropped(self._tables, parent_id, kind, family, key)
            return last and self._child(last)

    def _child(self, stand: Stand) -> Child:
        return Child(stand.key, stand.node, stand.state, *self._tables.bodies[stand.id])

    def _held(self, guards: Guards) -> bool:
        stands = self._tables.stands
        return all(i in stands and stands[i].scope_version == scope for i, scope in guards)

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        with self._lock:
            rows = [r for r in self._tables.owned.values() if (r.owner_id, r.kind) == (owner_id, kind)]
            rows = sorted((r for r in rows if r.name > after), key=lambda r: r.name)
            return RowPage(True, rows[:limit]) if self._held(guards) else RowPage(False, [])

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        with self._lock:
            return [self._tables.owned.get((i, kind, name)) for i, name in zip(owner_ids, names, strict=True)]

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        with self._lock:
            known = self._target(target)
            if known is None:
                return None
            keys = [(known.record.chain[-1].id, kind, name) for kind in kinds for name in set(names)]
            rows = [row for key in keys if (row := self._tables.owned.get(key)) is not None]
            return Owning(end_of_known(known), rows)

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        with self._lock:
            known = self._target(target)
            return known and relations.related(self._tables, self._known, known, kind, above=above, doc=doc)

    def _target(self, target: Lookup | int) -> Known | None:
        """Return the entity with an id, or at a path."""
        if isinstance(target, int):
            return self._known(target)
        record = self._follow(target).record
        return record and self._known(record.chain[-1].id)

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        with self._lock:
            return relations.relating(self._tables, self._known, to_id, kind, value, after, limit)

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        with self._lock:
            return relations.related_page(self._tables, self._known, from_id, kind, after, limit)

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        with self._lock:
            return relations.relations(self._tables, kind, slots)

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        with self._lock:
            steps = [s for s in self._tables.steps if s.entity_id == entity_id and (s.version or 0) > after]
            return [self._shown(s) for s in sorted(steps, key=lambda s: s.version or 0)[:limit]]

    def steps(self, operation_id: UUID) -> list[Step]:
        with self._lock:
            return [self._shown(s) for s in self._tables.steps if s.operation_id == operation_id]

    def feed(self, after: int, limit: int, *, docs: bool = True, changes: bool = True) -> RowPage[Step]:
        with self._lock:
            later = [s for s in self._tables.steps if s.seq is not None and s.seq > after]
            return RowPage(True, [self._shown(s) for s in later[:limit]])

    def steps_at(self, positions: Sequence[int]) -> list[Step]:
        with self._lock:
            return [self._shown(s) for s in self._tables.steps if s.seq in positions]

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        with self._lock:
            rows = [Touch(s.seq, s.entity_id, s.action, s.path_after) for s in self._tables.steps if s.seq is not None]
            later = [row for row in rows if row.seq > after][: limit + 1]
            return Touched(self._epoch, self._collected, 1, later + [row for row in rows if row.seq in gaps])

    def hearing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def hint(self, *, send: bool) -> bool:
        return False

    def feed_start(self) -> tuple[str, int]:
        with self._lock:
            return self._epoch, self._collected

    def unbroken(self, seq: int) -> bool:
        return True

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        with self._lock:
            return next((s.operation_id for s in self._tables.steps if s.seq == seq), None), False

    def _shown(self, step: Step) -> Step:
        """Return ``step`` with the creator and the creation time of its row, if the row still exists."""
        row = self._tables.row(step.entity_id)
        if row is None or isinstance(row, RelationRecord):
            return step
        return step._replace(created_by=row.created_by, created_at=row.created_at)

    @contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        with self._lock:
            snapshot = MemorySnapshot(self._tables.copy(), self._collected)
        yield snapshot

    def watermark(self) -> Watermark:
        with self._lock:
            return Watermark(self._tables.drawn["seq"], 0)

    def decided(self, watermark: Watermark) -> bool:
        return True
