"""The entities that a transaction sees: its drafts, and those of the database without drafts.

Rows read from the database are kept and noted: a second read returns the same, and the commit validates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from metastore.kinds.registry import kind_named
from metastore.names import fold
from metastore.port.backend import Reads
from metastore.port.conditions import LIVE, ROOT_ID, Absent
from metastore.port.records import ROOT, Known, Lookup, Node, Record, Resolved
from metastore.transaction.drafts import Draft, Drafts
from metastore.transaction.reads import ReadSet

Meet = Callable[[Sequence[Lookup], Sequence[int]], dict[Lookup, Record]]


class EntityOverlay:
    """Follow paths and find ids in the drafts and the database.

    ``meet`` is called once, before the first read, with the keys that this read uses. It returns the rows that it has
    read.
    """

    def __init__(self, base: Reads, reads: ReadSet, drafts: Drafts, meet: Meet | None) -> None:
        self._base = base
        self._reads = reads
        self._drafts = drafts
        self._meet = meet
        self._nodes: dict[int, tuple[Node, int]] = {}
        self._records: dict[int, tuple[Record, int]] = {}
        self._paths: dict[Lookup, Resolved] = {}
        self._written: dict[int, list[int]] = {}

    def addresses(self) -> dict[Lookup, int]:
        """Return the paths that were followed from the root, each with the entity to which it led."""
        paths = self._paths.items()
        return {w: one.record.chain[-1].id for w, one in paths if one.record is not None and w.start is ROOT}

    def catalogs(self) -> Iterator[Record]:
        """Yield the catalogs that the transaction has read and does not change, with their paths."""
        for record, state in self._records.values():
            match record.chain:
                case (metalake, catalog) if catalog.kind == "catalog" and state == LIVE:
                    changed = {metalake.id, catalog.id} & {*self._drafts, *self._reads.bumped}
                    if catalog.id in self._reads.entities and not changed:
                        yield record

    def name(self, entity_id: int) -> str:
        """Return the name of an entity that was read from the database."""
        return self._nodes[entity_id][0].name

    def written_below(self, parent_id: int) -> Sequence[int]:
        """Return the ids of those children in the database that the transaction wrote."""
        return self._written.get(parent_id, ())

    def draft(self, entity_id: int) -> Draft:
        """Return the draft of an entity that was read; a new draft has the content that was read."""
        if entity_id in self._drafts:
            return self._drafts[entity_id]
        record, state = self._records[entity_id]
        node, parent_id = self._nodes[entity_id]
        self._written.setdefault(parent_id, []).append(entity_id)
        above = record.chain[-2] if len(record.chain) > 1 else ROOT
        key = fold(node.name) if above.fold else node.name
        return Draft(node, parent_id, kind_named(node.kind).family, key, state, record)

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path over the database and the drafts."""
        self._begin(lookups, ())
        unknown = [w for w in dict.fromkeys(lookups) if w not in self._paths and not self._drafts.is_new(w.start.id)]
        for lookup, resolved in zip(unknown, self._base.resolve(unknown) if unknown else [], strict=True):
            self._keep(lookup, resolved)
        return [self._resolve(lookup) for lookup in lookups]

    def child(self, parent_id: int, family: str, key: str) -> Node | None:
        """Return a child of a parent that was read."""
        node, _ = self._nodes.get(parent_id, (ROOT, ROOT_ID))
        draft = self._drafts.get(parent_id)
        (resolved,) = self.resolve([Lookup((family,), (key,), draft.node if draft else node)])
        return resolved.nodes[0] if resolved.nodes else None

    def _begin(self, lookups: Sequence[Lookup], ids: Sequence[int]) -> None:
        """Give ``meet`` the keys of the first read, before it."""
        meet, self._meet = self._meet, None
        for lookup, record in {} if meet is None else meet(lookups, ids).items():
            self._keep(lookup, Resolved(record.chain, record))

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
                # created after the first look: the commit will conflict; until then the block must see no change
                there = None
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

    def _base_child(self, parent: Node, family: str, name: str) -> Node | None:
        if self._drafts.is_new(parent.id):
            return None
        lookup = Lookup((family,), (name,), parent)
        if lookup not in self._paths:
            self._keep(lookup, self._base.resolve([lookup])[0])
        resolved = self._paths[lookup]
        return resolved.nodes[0] if resolved.nodes else None

    def _record(self, nodes: list[Node]) -> Record:
        last = nodes[-1]
        draft = self._drafts.get(last.id)
        if draft is not None:
            return draft.record._replace(chain=tuple(nodes))
        if last.id not in self._records:
            self.by_id([last.id])
        record, _ = self._records[last.id]
        self._reads.entities[last.id] = record.version
        return record._replace(chain=tuple(nodes))

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        """Return the entities with these ids, with the paths that they will have after the commit."""
        unknown = [i for i in dict.fromkeys(ids) if i not in self._drafts and i not in self._records]
        self._begin((), unknown)
        for known in self._base.by_id(unknown) if unknown else []:
            if known is not None:
                self._note_nodes(ROOT, known.record.chain)
                last = known.record.chain[-1]
                self._records[last.id] = known.record, known.state
                if not known.live and known.state == LIVE:
                    self.by_id([n.id for n in known.record.chain[:-1]])  # find out which ancestor is not live
        return [self._known(i) for i in ids]

    def state(self, entity_id: int) -> int:
        """Return the state of an entity that was read."""
        draft = self._drafts.get(entity_id)
        if draft is not None:
            return draft.state
        return self._records[entity_id][1] if entity_id in self._records else LIVE

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
        return Known.of(record._replace(chain=chain), [*[self.state(n.id) for n in chain], state])

    def _chain(self, entity_id: int) -> tuple[Node, ...]:
        """Return the nodes from the root to an entity, as they will be after the commit."""
        nodes: list[Node] = []
        while entity_id != ROOT_ID:
            draft = self._drafts.get(entity_id)
            if draft is not None:
                node, parent_id = draft.node, draft.parent_id
            else:
                if entity_id not in self._nodes:
                    self.by_id([entity_id])
                node, parent_id = self._nodes[entity_id]
                self.note_guard(node.id, node.scope_version)
            nodes.append(node)
            entity_id = parent_id
        return tuple(reversed(nodes))

    def note_guard(self, entity_id: int, scope_version: int) -> None:
        """Note the scope version of an entity, which the commit checks."""
        if not self._drafts.is_new(entity_id):
            self._reads.guards.setdefault(entity_id, scope_version)

    def note_root(self, parent_id: int) -> None:
        """Note the guard of the root if the root is the parent, because no path notes it."""
        if parent_id == ROOT_ID:
            self.note_guard(ROOT_ID, ROOT.scope_version)

    def note_child(self, node: Node, parent_id: int) -> None:
        """Note the place of a listed child. Its guard is noted when the child is used."""
        self._nodes.setdefault(node.id, (node, parent_id))

    def _keep(self, lookup: Lookup, resolved: Resolved) -> None:
        self._paths[lookup] = resolved
        self._note_nodes(lookup.start, resolved.nodes)
        if resolved.record is not None:
            last = resolved.record.chain[-1]
            self._records.setdefault(last.id, (resolved.record, LIVE))

    def _note_nodes(self, start: Node, nodes: Iterable[Node]) -> None:
        parent = start
        for node in nodes:
            self.note_child(node, parent.id)
            self.note_guard(node.id, node.scope_version)
            parent = node

    def _note_absent(self, parent: Node, family: str, key: str) -> None:
        if not self._drafts.is_new(parent.id):
            self._reads.absent.add(Absent(parent.id, family, key))
            self.note_guard(parent.id, parent.scope_version)
