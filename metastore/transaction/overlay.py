"""What a transaction sees: the database, with the transaction's own writes over it.

An :class:`Overlay` keeps :class:`metastore.port.backend.Reads`, so that the same managers work on it and on a backend.
It passes reads on to the backend and notes them, to be validated. It sends no commit: it lays each one over what the
backend shows. :meth:`Overlay.commit_value` turns all of it into one commit. Its writes are those of the operations, one
by one: an entity that is written twice gets two more versions.

The commit validates an entity by its version, and the path to it by shared guards. It validates a name or a listing by
an exclusive guard on the parent, and reads it again under that guard.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from metastore.clock import Clock
from metastore.errors import InvalidArgument
from metastore.kinds.registry import kind_named
from metastore.names import fold
from metastore.port.backend import Backend, Guards, Reads
from metastore.port.commit import (
    DROPPED,
    DROPPING,
    LIVE,
    PURGING,
    ROOT_ID,
    Absent,
    Children,
    Commit,
    Committed,
    Insert,
    Listing,
    Newest,
    Outcome,
    Relate,
    Result,
    Update,
    Write,
)
from metastore.port.owning import read_owning
from metastore.port.records import (
    ROOT,
    Child,
    Known,
    Lookup,
    Node,
    Origin,
    OwnedRecord,
    Record,
    Resolved,
    RowPage,
    Step,
)
from metastore.port.relations import Owning, Related, Relating, RelationRecord, end_of_known
from metastore.transaction.changed import Changed, changed
from metastore.transaction.drafts import Draft, Drafts
from metastore.transaction.owned import OwnedOverlay
from metastore.transaction.reads import ReadSet
from metastore.transaction.relations import RelationOverlay

__all__ = ["Overlay"]

Meet = Callable[[Sequence[Lookup], Sequence[int]], dict[Lookup, Record]]
_PAGE = 1000
_IDS, _MOST_IDS = 32, 1000


class Overlay(Reads):
    """The reads and the commit of a backend, on top of another: see the module."""

    def __init__(self, base: Backend, clock: Clock, principal: str | None, meet: Meet | None = None) -> None:
        self._base = base
        self._clock = clock
        self._principal = principal
        self._meet = meet
        self._origin: Origin | None = None
        self._reads = ReadSet()
        self._drafts = Drafts()
        self._owned = OwnedOverlay(base, self._reads, self._drafts.is_new)
        self._relations = RelationOverlay(base, self._reads, self._drafts.is_new)
        self._writes: list[Write] = []
        self._nodes: dict[int, tuple[Node, int]] = {}
        self._records: dict[int, tuple[Record, int]] = {}
        self._paths: dict[Lookup, Resolved] = {}
        self._ids: list[int] = []
        self._touched: dict[int, list[int]] = {}
        """By parent in the database: the ids of its children that were written."""
        self._listings: dict[tuple[int, str, str, int], tuple[int, list[Child]]] = {}

    # --- where what it returns comes from

    @property
    def origin(self) -> Origin:
        """The origin of every entity that the transaction returns: uncommitted, until it commits."""
        if self._origin is None:
            self._origin = Origin(self._base.origin.database, committed=False)
        return self._origin

    def identify(self) -> Origin:
        """Read again which database this is."""
        return self._base.identify()

    def committed(self) -> None:
        """Note that every entity that the transaction returned is committed now."""
        self.origin.committed = True

    # --- the transaction as a commit

    def commit_value(self, operation_id: UUID) -> Commit:
        """Return everything that was read and written as one commit."""
        return self._reads.commit(operation_id, self._principal, self._writes, self._family)

    def reads_value(self, operation_id: UUID) -> Commit:
        """Return what was read as a commit that writes nothing."""
        return self._reads.commit(operation_id, self._principal, (), self._family)

    def require(self, entity_id: int, scope_version: int) -> None:
        """Note a scope that the transaction has frozen: its commit guards that scope, whatever the block does."""
        self._reads.guards[entity_id] = scope_version

    def addresses(self) -> dict[Lookup, int]:
        """Return the paths from the root that were followed, and to which entity each led."""
        paths = self._paths.items()
        return {w: one.record.chain[-1].id for w, one in paths if one.record is not None and w.start is ROOT}

    def changed(self, shown: Reads | None = None) -> Changed | None:
        """Return which entity has changed since it was read or written, after a conflict; None: none has.

        ``shown``: what a user sees; nothing is told of anything else.
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
        return changed(self._base, expected, guards, lambda entity_id: self._nodes[entity_id][0].name)

    def _family(self, entity_id: int) -> str:
        return self._drafts[entity_id].family

    # --- writes

    def commit(self, commit: Commit) -> Outcome:
        """Lay a commit over what is there."""
        if commit.principal != self._principal:
            raise InvalidArgument("all of a transaction has one principal; give it to transaction() or run()")
        for guard in commit.guards:
            self._note_guard(guard.id, guard.scope_version)
            if guard.bump and not self._drafts.is_new(guard.id):
                self._reads.bumped.add(guard.id)
        now = self._clock.micros()
        return Committed(tuple(self._write(w, now, commit.skip_existing) for w in commit.writes))

    def _write(self, write: Write, now: int, skip_existing: bool) -> Result | None:
        if isinstance(write, Insert):
            if skip_existing and self._child(write.parent_id, write.family, write.key) is not None:
                return None
            return self._insert(write, now)
        if isinstance(write, Update):
            return self._update(write, now)
        if isinstance(write, Relate) and skip_existing and self._is_there(write):
            return None
        self._writes.append(write)
        if isinstance(write, Relate):
            return self._relations.write(write, self._principal, now)
        return self._owned.write(write, self._principal, now)

    def _insert(self, write: Insert, now: int) -> Result:
        entity_id = self._next_id() if write.id is None else write.id
        node = Node(entity_id, write.kind, write.name, 1, True, write.fold)
        record = Record((node,), 1, write.doc, self._principal, now, self._principal, now)
        self._drafts[entity_id] = Draft(node, write.parent_id, write.family, write.key, LIVE, record, new=True)
        self._writes.append(replace(write, id=entity_id))
        return Result(entity_id, 1, now)

    def _update(self, write: Update, now: int) -> Result:
        draft = self._draft(write.id)
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
        self._writes.append(write)
        return Result(write.id, write.version + 1, now)

    def _draft(self, entity_id: int) -> Draft:
        """Return the draft of an entity that was read."""
        if entity_id in self._drafts:
            return self._drafts[entity_id]
        record, state = self._records[entity_id]
        node, parent_id = self._nodes[entity_id]
        self._touched.setdefault(parent_id, []).append(entity_id)
        above = record.chain[-2] if len(record.chain) > 1 else ROOT
        key = fold(node.name) if above.fold else node.name
        return Draft(node, parent_id, kind_named(node.kind).family, key, state, record)

    def _next_id(self) -> int:
        if not self._ids:
            self._ids = self._base.reserve_ids(min(_MOST_IDS, max(_IDS, len(self._writes))))[::-1]
        return self._ids.pop()

    # --- reads of entities

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path over the database and the drafts."""
        self._begin(lookups, ())
        unknown = [w for w in dict.fromkeys(lookups) if w not in self._paths and not self._drafts.is_new(w.start.id)]
        for lookup, resolved in zip(unknown, self._base.resolve(unknown) if unknown else [], strict=True):
            self._paths[lookup] = resolved
            self._note_chain(lookup.start, resolved)
        return [self._resolve(lookup) for lookup in lookups]

    def _begin(self, lookups: Sequence[Lookup], ids: Sequence[int]) -> None:
        """Before anything is read, show what is read first."""
        meet, self._meet = self._meet, None
        for lookup, record in {} if meet is None else meet(lookups, ids).items():
            self._paths[lookup] = Resolved(record.chain, record)
            self._note_chain(lookup.start, self._paths[lookup])

    def _resolve(self, lookup: Lookup) -> Resolved:
        base = self._paths.get(lookup, Resolved((), None))
        parent, nodes, in_step = lookup.start, list[Node](), True
        for level, (family, name) in enumerate(zip(lookup.families, lookup.names, strict=True)):
            key = fold(name) if parent.fold else name
            draft = self._drafts.at(parent.id, family, key)
            there = base.nodes[level] if in_step and level < len(base.nodes) else None
            if draft is None and there is None and not in_step:
                there = self._base_child(parent, family, name)
            if there is not None and Absent(parent.id, family, key) in self._reads.absent:
                there = (
                    None  # it was created since then: the commit will conflict, and until then the block sees no change
                )
            if draft is not None:
                in_step = in_step and there is not None and there.id == draft.node.id
                parent = draft.node
            elif there is not None and there.id not in self._drafts:
                parent = there
            else:
                if there is None:
                    self._note_absent(parent, family, key)
                return Resolved(tuple(nodes), None)
            nodes.append(parent)
        return Resolved(tuple(nodes), self._record(nodes))

    def _record(self, nodes: list[Node]) -> Record:
        """Return the record of the last node, noted as read."""
        last = nodes[-1]
        draft = self._drafts.get(last.id)
        if draft is not None:
            return draft.record._replace(chain=tuple(nodes))
        if last.id not in self._records:
            self.by_id([last.id])
        record, _ = self._records[last.id]
        self._reads.entities[last.id] = record.version
        return record._replace(chain=tuple(nodes))

    def _base_child(self, parent: Node, family: str, name: str) -> Node | None:
        if self._drafts.is_new(parent.id):
            return None
        lookup = Lookup((family,), (name,), parent)
        if lookup not in self._paths:
            (self._paths[lookup],) = self._base.resolve([lookup])
            self._note_chain(parent, self._paths[lookup])
        resolved = self._paths[lookup]
        return resolved.nodes[0] if resolved.nodes else None

    def _child(self, parent_id: int, family: str, key: str) -> Node | None:
        node, _ = self._nodes.get(parent_id, (ROOT, ROOT_ID))
        draft = self._drafts.get(parent_id)
        resolved = self._resolve_one(Lookup((family,), (key,), draft.node if draft else node))
        return resolved.nodes[0] if resolved.nodes else None

    def _resolve_one(self, lookup: Lookup) -> Resolved:
        return self.resolve([lookup])[0]

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        unknown = [i for i in dict.fromkeys(ids) if i not in self._drafts and i not in self._records]
        self._begin((), unknown)
        for known in self._base.by_id(unknown) if unknown else []:
            if known is not None:
                self._note_nodes(ROOT, known.record.chain)
                last = known.record.chain[-1]
                self._records[last.id] = known.record, known.state
                if not known.live and known.state == LIVE:
                    self.by_id([n.id for n in known.record.chain[:-1]])  # to learn which of them is not live
        return [self._known(i) for i in ids]

    def _known(self, entity_id: int) -> Known | None:
        if entity_id not in self._drafts and entity_id not in self._records:
            return None
        chain = self._chain(entity_id)
        draft = self._drafts.get(entity_id)
        if draft is not None:
            record, state = draft.record, draft.state
        else:
            record, state = self._records[entity_id]
            self._reads.entities[entity_id] = record.version
        states = [state, *[self._state(n.id) for n in chain]]
        return Known(
            record._replace(chain=chain), state, all(s == LIVE for s in states), PURGING in states, DROPPING in states
        )

    def _state(self, entity_id: int) -> int:
        draft = self._drafts.get(entity_id)
        if draft is not None:
            return draft.state
        return self._records[entity_id][1] if entity_id in self._records else LIVE

    def _chain(self, entity_id: int) -> tuple[Node, ...]:
        """Return the nodes from the root to an entity, as they will be."""
        nodes: list[Node] = []
        while entity_id != ROOT_ID:
            draft = self._drafts.get(entity_id)
            if draft is not None:
                node, parent_id = draft.node, draft.parent_id
            else:
                if entity_id not in self._nodes:
                    self.by_id([entity_id])
                node, parent_id = self._nodes[entity_id]
                self._note_guard(node.id, node.scope_version)
            nodes.append(node)
            entity_id = parent_id
        return tuple(reversed(nodes))

    def hold(self, guards: Guards) -> bool:
        """Return True: the commit validates the guards."""
        return True

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        if any(self._drafts.below(entity_id)):
            return True
        if self._drafts.is_new(entity_id):
            return False
        known = frozenset([*besides, *self._touched.get(entity_id, ())])
        there = self._base.has_children(entity_id, sorted(known))
        self._reads.children.add(Children(entity_id, known, there))
        return there

    # --- listings

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        listing = self._listing(parent_id, kind, family, state)
        start = bisect_right(listing, after, key=lambda c: (c.key, c.node.id))
        return RowPage(True, listing[start : start + limit])

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        listing = self._listing(parent_id, kind, family, LIVE)
        start = bisect_right(listing, after, key=lambda c: c.key)
        return RowPage(True, [(c.key, c.node.name) for c in listing[start : start + limit]])

    def _listing(self, parent_id: int, kind: str, family: str, state: int) -> list[Child]:
        which = (parent_id, kind, family, state)
        if which in self._listings and self._listings[which][0] == len(self._writes):
            return self._listings[which][1]  # the next page of the same listing
        listing = self._merged(parent_id, kind, family, state)
        self._listings[which] = len(self._writes), listing
        return listing

    def _merged(self, parent_id: int, kind: str, family: str, state: int) -> list[Child]:
        there = [] if self._drafts.is_new(parent_id) else self._base_listing(parent_id, kind, family, state)
        mine = [draft.child() for draft in self._drafts.below(parent_id, state) if draft.node.kind == kind]
        rows = [c for c in there if c.node.id not in self._drafts] + mine
        return sorted(rows, key=lambda c: (c.key, c.node.id))

    def _base_listing(self, parent_id: int, kind: str, family: str, state: int) -> list[Child]:
        """Return the whole listing as the backend shows it, and note it."""
        rows: list[Child] = []
        after = ("", 0)
        while True:
            page = self._base.children(parent_id, kind, family, state, after, _PAGE, ())
            rows += page.rows
            if len(page.rows) < _PAGE:
                break
            after = (rows[-1].key, rows[-1].node.id)
        for row in rows if state == LIVE else ():
            self._nodes.setdefault(row.node.id, (row.node, parent_id))
        members = frozenset((c.node.id, c.version) for c in rows)
        key = (parent_id, kind, False, state)
        self._reads.listings.setdefault(key, Listing(parent_id, kind, members, state=state))
        if parent_id == ROOT_ID:
            self._note_guard(ROOT_ID, ROOT.scope_version)
        return rows

    # --- owned rows

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        return RowPage(True, [r for r in self._owned.listing(owner_id, kind) if r.name > after][:limit])

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        return self._owned.by_name(owner_ids, kind, names)

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        return read_owning(self, target, kinds, names)

    # --- relations

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        if not isinstance(target, int):
            record = self._resolve_one(target).record
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
        rows = sorted(row for row in self._relations.outgoing(from_id, kind) if row[2:5] > after)[:limit]
        ends = self.by_id([row.to_id for row in rows])
        return Relating(
            end_of_known(known), [(row, end_of_known(end), None) for row, end in zip(rows, ends, strict=True)]
        )

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        return self._relations.in_slots(kind, slots)

    def _is_there(self, write: Relate) -> bool:
        there = self._relations.in_slots(write.kind, [(write.from_id, write.slot)])
        return any((row.column_id, row.value) == (write.column_id, write.value) for row in there)

    # --- noting what was read

    def _note_chain(self, start: Node, resolved: Resolved) -> None:
        self._note_nodes(start, resolved.nodes)
        if resolved.record is not None:
            last = resolved.record.chain[-1]
            self._records.setdefault(last.id, (resolved.record, LIVE))

    def _note_nodes(self, start: Node, nodes: Iterable[Node]) -> None:
        parent = start
        for node in nodes:
            self._nodes.setdefault(node.id, (node, parent.id))
            self._note_guard(node.id, node.scope_version)
            parent = node

    def _note_guard(self, entity_id: int, scope_version: int) -> None:
        if not self._drafts.is_new(entity_id):
            self._reads.guards.setdefault(entity_id, scope_version)

    def _note_absent(self, parent: Node, family: str, key: str) -> None:
        if not self._drafts.is_new(parent.id):
            self._reads.absent.add(Absent(parent.id, family, key))
            self._note_guard(parent.id, parent.scope_version)

    # --- what was dropped, and history

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        draft = self._drafts.at(parent_id, family, key, DROPPED, kind)
        if draft is not None:
            return draft.child()
        if self._drafts.is_new(parent_id):
            return None
        child = self._base.gone(parent_id, kind, family, key)
        self._reads.newest.add(Newest(parent_id, kind, family, key, child and child.node.id))
        if parent_id == ROOT_ID:
            self._note_guard(ROOT_ID, ROOT.scope_version)
        if child is not None:
            self.by_id([child.node.id])
        return None if child is not None and self._state(child.node.id) == LIVE else child

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        return self._base.history(entity_id, after, limit)
