"""The past in the memory model: each read replays the feed's steps up to its position."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.memory.tables import Tables, Work
from metastore.names import fold
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.past import ConsumerRow, NotKept, PastRow, PinRow, Way
from metastore.port.records import ROOT, Child, Known, Lookup, Node, OwnedRecord, Record, Resolved, Step


def until(step: Step) -> int:
    """Return the position from which a step is visible."""
    return step.through or step.seq or 0


class MemoryPast:
    """The implementation of :class:`metastore.port.past.PastRows`."""

    def __init__(self, look: Work) -> None:
        self._look = look

    def _then(self, at: int) -> dict[int, Step]:
        """Return the newest step that each entity and owned row had at a position."""

        def replay(tables: Tables, _: int) -> dict[int, Step]:
            since = tables.drawn["past_from"]
            if since > at and all(pin.seq != at for pin in tables.pins.values()):
                raise NotKept(since)
            known = [s for s in tables.steps if s.seq is not None and until(s) <= at and s.state is not None]
            return {s.entity_id or 0: s for s in known}

        return self._look(replay)

    def _body(self, step: Step) -> tuple[int, str, str | None, int, str | None, int]:
        def made(tables: Tables, _: int) -> tuple[str | None, int]:
            row = tables.row(step.entity_id)
            if row is not None:
                return row.created_by, row.created_at
            first = [s for s in tables.steps if (s.entity_id, s.version) == (step.entity_id, 1)]
            return (first[0].principal, first[0].time) if first else (None, step.time)

        return step.version or 0, step.doc or "", *self._look(made), step.principal, step.time

    def resolve(self, at: int, lookups: Sequence[Lookup]) -> list[Resolved]:
        then = self._then(at)
        return [self._resolve(then, lookup) for lookup in lookups]

    def _resolve(self, then: dict[int, Step], lookup: Lookup) -> Resolved:
        nodes, above, last = list[Node](), lookup.start, None
        families = self._look(lambda tables, _: {s.entity_id: s.family for s in tables.steps if s.family is not None})
        for family, name in zip(lookup.families, lookup.names, strict=True):
            key = fold(name) if above.fold else name
            below = [s for s in then.values() if s.parent_id == above.id and s.state == LIVE and s.owner_id is None]
            mine = [s for s in below if families.get(s.entity_id) == family]
            named = [s for s in mine if (fold(s.name or "") if above.fold else s.name) == key]
            if not named:
                return Resolved(tuple(nodes), None)
            (last,) = named
            above = _node(last)
            nodes.append(above)
        assert last is not None
        return Resolved(tuple(nodes), Record(tuple(nodes), *self._body(last)))

    def by_id(self, at: int, ids: Sequence[int], *, docs: bool = True) -> list[Known | None]:
        then = self._then(at)
        return [self._known(then, i) for i in ids]

    def ways(self, at: int, ids: Sequence[int]) -> dict[int, Way]:
        known = zip(ids, self.by_id(at, ids), strict=True)
        return {i: Way(tuple([node.id for node in one.record.chain]), one.live) for i, one in known if one is not None}

    def _known(self, then: dict[int, Step], entity_id: int) -> Known | None:
        chain = list[Step]()
        while entity_id != ROOT_ID:
            step = then.get(entity_id)
            if step is None or step.owner_id is not None:
                return None
            chain.insert(0, step)
            entity_id = step.parent_id or 0
        if not chain:  # the root
            return None
        record = Record(tuple(map(_node, chain)), *self._body(chain[-1]))
        return Known.of(record, [s.state or 0 for s in chain])

    def children(
        self, at: int, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int
    ) -> list[Child]:
        then = self._then(at)
        above = then.get(parent_id)
        folds = ROOT.fold if above is None else bool(above.fold)
        children = list[Child]()
        for s in then.values():
            if (s.parent_id, s.kind, s.state) == (parent_id, kind, state) and s.owner_id is None:
                key = fold(s.name or "") if folds else s.name or ""
                if key > after[0] if state == LIVE else (key, s.entity_id or 0) > after:
                    children.append(Child(key, _node(s), state, *self._body(s)))
        return sorted(children, key=lambda child: (child.key, child.node.id))[:limit]

    def owned(self, at: int, owner_id: int, kind: str, after: str, limit: int) -> list[OwnedRecord]:
        wanted = (owner_id, kind, LIVE)
        rows = [s for s in self._then(at).values() if (s.owner_id, s.kind, s.state) == wanted]
        page = [self._owned(s) for s in rows if (s.name or "") > after]
        return sorted(page, key=lambda row: row.name)[:limit]

    def related(self, at: int, from_ids: Sequence[int], kind: str) -> list[OwnedRecord]:
        then = self._then(at).values()
        return [self._owned(s) for s in then if s.owner_id in from_ids and (s.kind, s.state) == (kind, LIVE)]

    def led(self, at: int, to_id: int, kind: str) -> list[OwnedRecord]:
        wanted = (to_id, kind, LIVE)
        return [self._owned(s) for s in self._then(at).values() if (s.other_id, s.kind, s.state) == wanted]

    def owned_by_name(
        self, at: int, owner_ids: Sequence[int], kind: str, names: Sequence[str]
    ) -> list[OwnedRecord | None]:
        live = [s for s in self._then(at).values() if (s.kind, s.state) == (kind, LIVE)]
        rows = {(s.owner_id, s.name): self._owned(s) for s in live if s.owner_id is not None}
        return [rows.get(wanted) for wanted in zip(owner_ids, names, strict=True)]

    def _owned(self, s: Step) -> OwnedRecord:
        return OwnedRecord(s.entity_id or 0, s.owner_id or 0, s.kind or "", s.name or "", *self._body(s))

    def rows(self, at: int, low: int, high: int, kinds: Sequence[str] | None = None) -> list[PastRow]:
        steps = [s for i, s in sorted(self._then(at).items()) if low <= i < high and (kinds is None or s.kind in kinds)]
        return [self._row(s) for s in steps]

    def _row(self, s: Step) -> PastRow:
        owner, above, kind, name = s.owner_id, s.parent_id or 0, s.kind or "", s.name or ""
        return PastRow(s.entity_id or 0, owner, above, kind, name, s.state or 0, *self._body(s), s.other_id)

    def last_id(self) -> int:
        return self._look(lambda tables, _: tables.drawn["id"])

    def history(self, at: int, entity_id: int, after: int, limit: int) -> list[Step]:
        self.check(at)

        def steps(tables: Tables, _: int) -> list[Step]:
            mine = [s for s in tables.steps if s.entity_id == entity_id and (s.version or 0) > after]
            return sorted((s for s in mine if s.seq and until(s) <= at), key=lambda s: s.version or 0)[:limit]

        return self._look(steps)

    def check(self, at: int) -> None:
        self._then(at)

    def since(self) -> int:
        return self._look(lambda tables, _: tables.drawn["past_from"])

    def times(self, after: int, limit: int) -> list[tuple[int, int]]:
        return self._look(lambda tables, _: [(s.seq, s.time) for s in tables.steps if s.seq and s.seq > after][:limit])

    def later(self, after: int) -> tuple[int, int | None]:
        found = self._look(lambda tables, _: [s.time for s in tables.steps if s.seq and s.seq > after])
        return len(found), found[0] if found else None

    def newest(self, until: int) -> Step | None:
        return self._look(lambda tables, _: next((s for s in tables.steps[::-1] if s.seq and s.seq <= until), None))


def _node(s: Step) -> Node:
    return Node(s.entity_id or 0, s.kind or "", s.name or "", s.scope_version or 1, bool(s.in_use), bool(s.fold))


class MemoryReaders:
    """The implementation of :class:`metastore.port.past.Readers`."""

    def __init__(self, look: Work) -> None:
        self._look = look

    def pin(self, name: str, seq: int, principal: str | None, seconds: float | None) -> PinRow | None:
        def add(tables: Tables, now: int) -> PinRow | None:
            since = tables.drawn["past_from"]
            if seq < since and all(pin.seq != seq for pin in tables.pins.values()):
                raise NotKept(since)
            known = tables.pins.get(name)
            if known is not None and (known.expires_at is None or known.expires_at >= now):
                return None
            expires = None if seconds is None else now + round(seconds * 1_000_000)
            tables.pins[name] = PinRow(name, seq, principal, now, expires)
            return tables.pins[name]

        return self._look(add)

    def pins(self) -> list[PinRow]:
        def find(tables: Tables, now: int) -> list[PinRow]:
            kept = [pin for pin in tables.pins.values() if pin.expires_at is None or pin.expires_at >= now]
            ids = {step.seq: step.operation_id for step in tables.steps}
            return [pin._replace(operation_id=ids.get(pin.seq)) for pin in sorted(kept)]

        return self._look(find)

    def extend(self, name: str, seconds: float) -> bool:
        def change(tables: Tables, now: int) -> bool:
            if name in tables.pins:
                tables.pins[name] = tables.pins[name]._replace(expires_at=now + round(seconds * 1_000_000))
            return name in tables.pins

        return self._look(change)

    def unpin(self, name: str) -> bool:
        return self._look(lambda tables, _: tables.pins.pop(name, None) is not None)

    def consumer(self, name: str) -> ConsumerRow | None:
        def find(tables: Tables, _: int) -> ConsumerRow | None:
            row = tables.consumers.get(name)
            return None if row is None else _at_its_change(tables, row)

        return self._look(find)

    def consumers(self) -> list[ConsumerRow]:
        return self._look(lambda tables, _: [_at_its_change(tables, row) for row in sorted(tables.consumers.values())])

    def add_consumer(self, name: str, seq: int) -> ConsumerRow:
        def add(tables: Tables, now: int) -> ConsumerRow:
            return _at_its_change(tables, tables.consumers.setdefault(name, ConsumerRow(name, seq, now, now)))

        return self._look(add)

    def drop_consumer(self, name: str) -> bool:
        return self._look(lambda tables, _: tables.consumers.pop(name, None) is not None)


def _at_its_change(tables: Tables, row: ConsumerRow) -> ConsumerRow:
    return row._replace(operation_id=next((step.operation_id for step in tables.steps if step.seq == row.seq), None))
