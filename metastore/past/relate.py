"""Restore relations: create those that an entity had, and remove those that were added since."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.kinds.relation import relation_doc, relation_named
from metastore.managers.relations.writes import event_of, removal
from metastore.operation.guards import both, check_in_use
from metastore.operation.perform import perform
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import ManagerSession
from metastore.past.plan import in_batches
from metastore.past.reads import PastReads
from metastore.port.records import Record
from metastore.port.relations import RelationKey, RelationRecord, end_of_known, in_one_metalake
from metastore.port.writes import Relate

__all__ = ["Relating"]

_Slot = tuple[int, str, int]


class Relating:
    """The relations in some slots (entity, kind, slot), in a transaction and as of a position."""

    def __init__(self, session: ManagerSession, then: PastReads, slots: Sequence[_Slot]) -> None:
        self._session = session
        self._kinds: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for from_id, kind, slot in slots:
            self._kinds.setdefault(from_id, {}).setdefault(kind, []).append((from_id, slot))
        self._old: dict[tuple[int, str], list[RelationRecord]] = {}
        for kind in dict.fromkeys(kind for _, kind, _ in slots):
            wanted = [(from_id, slot) for from_id, of, slot in slots if of == kind]
            session.backend.relations(kind, wanted)  # read ahead, because the transaction keeps its reads
            for row in _existing(then, then.relations(kind, wanted)):
                self._old.setdefault((row.from_id, kind), []).append(row)

    def put_back(self, from_id: int) -> None:
        """Restore the relations in the slots of an entity to their old state."""
        for kind, slots in self._kinds.get(from_id, {}).items():
            old = {row.key: row for row in self._old.get((from_id, kind), ())}
            new = {row.key: row for row in self._session.backend.relations(kind, slots)}
            for key in dict.fromkeys([*new, *old]):
                self._put(key, old.get(key), new.get(key))

    def _put(self, key: RelationKey, old: RelationRecord | None, new: RelationRecord | None) -> None:
        if (old and old.to_id) == (new and new.to_id):
            return
        to_id = old.to_id if old is not None else new.to_id if new is not None else 0
        ends = self._ends(key.from_id, to_id)
        if ends is None:
            return
        here, there = ends
        write = self._made(key, to_id, here, there, new) if old is not None else self._removed(here, there, new)

        def attempt(_: View) -> Proposal[None]:
            check_in_use(here.chain[:-1])
            check_in_use(there.chain[:-1])
            return Proposal(both(here.chain, there.chain), (write,), lambda _: None)

        request = Request[None](
            verb="revert",
            what=lambda: f"revert {key.kind}",
            attempt=attempt,
            replay=lambda _: None,
            arguments=lambda: [list(key), to_id],
        )
        perform(self._session, request, Call())

    def _ends(self, from_id: int, to_id: int) -> tuple[Record, Record] | None:
        """Return both ends, if they are live in one metalake; None: the relation does not exist, and needs no write."""
        here, there = self._session.backend.by_id([from_id, to_id])
        if here is None or there is None or not in_one_metalake(end_of_known(here), end_of_known(there)):
            return None
        return here.record, there.record

    def _made(self, key: RelationKey, to_id: int, here: Record, there: Record, new: RelationRecord | None) -> Relate:
        from_id, kind, slot, column, value = key
        action = "create" if new is None else "alter"
        event = event_of(relation_named(kind), action, here.path, there.path)
        version, row_id = (0, 0) if new is None else (new.version, new.id)
        doc = relation_doc(to_id, column, value)
        return Relate(from_id, kind, slot, column, value, to_id, version, doc, event, row_id)

    def _removed(self, here: Record, there: Record, new: RelationRecord | None) -> Relate:
        assert new is not None
        return removal(new, event_of(relation_named(new.kind), "drop", here.path, there.path))


def _existing(then: PastReads, rows: Sequence[RelationRecord]) -> list[RelationRecord]:
    """Return the relations whose two ends were live in one metalake; the others did not exist."""
    ids = list(dict.fromkeys(i for row in rows for i in (row.from_id, row.to_id)))
    ends = dict(zip(ids, map(end_of_known, in_batches(then, ids)), strict=True))
    return [row for row in rows if in_one_metalake(ends[row.from_id], ends[row.to_id])]
