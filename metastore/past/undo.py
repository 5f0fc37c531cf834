"""Run the steps of a plan in one transaction: each puts back the place or the content of one entity, or drops it.

A step checks the present state, and does not touch an entity that already has its old state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from metastore.errors import DropPending, EntityNotFound
from metastore.kinds.entity import Entity
from metastore.kinds.kind import dump, to_json
from metastore.kinds.registry import KINDS, OWNED_KINDS, kind_named
from metastore.kinds.secret import PREFIX, kept_readable
from metastore.kinds.table.dropping import MARKER
from metastore.managers.attempts.alter import rewrite
from metastore.managers.drops.parts import marked_by
from metastore.managers.mutation import first_entity, mutate
from metastore.managers.owned import OwnedManager
from metastore.managers.owned_rows import Row
from metastore.managers.statistics import revert_partition_statistics
from metastore.managers.target import find
from metastore.names import format_path
from metastore.operation.request import Call, Proposal, View
from metastore.operation.session import Session
from metastore.past.plan import COUNTERS, ROWS, Goal, Plan, Step, in_batches, parent_of, place_of, rows_of
from metastore.past.reads import reads_at
from metastore.past.relate import Relating
from metastore.port.conditions import LIVE
from metastore.port.records import Known
from metastore.transaction.transaction import Transaction

__all__ = ["Undoing", "without_dropping"]


class Undoing:
    """Some steps of a plan, in a transaction."""

    def __init__(self, session: Session, tx: Transaction, to: int, plan: Plan) -> None:
        self._tx, self._plan = tx, plan
        self._session = tx._session  # noqa: SLF001  (the session of the transaction's managers)
        self._read = self._session.backend
        self._then = reads_at(session, to)
        self._docs: dict[int, Known] = {}

    def run(self, steps: Sequence[Step]) -> None:
        """Run the steps, after reading all entities that they need at once."""
        ids = [*dict.fromkeys(entity_id for _, entity_id in steps)]
        list(in_batches(self._read, ids))  # read ahead, because the transaction keeps the entities
        filled = [entity_id for verb, entity_id in steps if verb == "fill" and entity_id in self._plan.goals]
        self._docs = {known.record.chain[-1].id: known for known in in_batches(self._then, filled) if known}
        wanted = [(i, *one) for verb, i in steps if verb == "fill" for one in self._plan.relations.get(i, ())]
        relating = Relating(self._session, self._then, wanted)
        for verb, entity_id in steps:
            if verb == "put":
                self._put(self._plan.goals[entity_id])
            elif verb == "drop":
                self._drop(entity_id)
            elif verb == "fill":
                self._fill(entity_id)
                relating.put_back(entity_id)
            else:
                self._enable(self._plan.goals[entity_id])

    # --- places

    def _put(self, goal: Goal, via: tuple[int, ...] = ()) -> None:
        """Give an entity its old name and place; its old parent goes back first.

        If the entity itself is live, but below a dropped one, its present ancestors also go back first.
        """
        if goal.id in via:
            # this entity waits for an entity below it, which can move only when this one is restored
            if self._state(goal.id) != LIVE:
                self._move(goal)
            return
        via = (*via, goal.id)
        known = self._known(goal.id)
        above = [] if known is None or known.state != LIVE or known.live else known.record.chain[:-1]
        for entity_id in (goal.parent_id, *[node.id for node in above]):
            if entity_id in self._plan.goals:
                self._put(self._plan.goals[entity_id], via)
        if not self._stands(goal) and not self._is_above_its_parent(goal):
            self._free(goal)
            self._move(goal)
        if goal.in_use:
            self._enable(goal)

    def _move(self, goal: Goal) -> None:
        manager, path = self._tx.manager(goal.kind), self._path(goal)
        if self._state(goal.id) == LIVE:
            manager.rename(self._entity(goal.id), path)
        else:
            manager.restore(path, id=goal.id, to=path)

    def _path(self, goal: Goal) -> tuple[str, ...]:
        """Return the path of the old place. While the parent is not live, return one below its nearest live ancestor.

        Two entities, one below the other, may have changed places before both were dropped. Then the upper one comes
        back first, and moves below the other one later.
        """
        parent, name = self._known(goal.parent_id), goal.name
        if parent is not None and not parent.live:
            above = [node.id for known in self._then.by_id([goal.parent_id]) if known for node in known.record.chain]
            live = [known for known in self._read.by_id(above) if known is not None and known.live]
            parent, name = (live or [parent])[-1], _waiting(goal.id)
        return (*[node.name for node in ([] if parent is None else parent.record.chain)], name)

    def _is_above_its_parent(self, goal: Goal) -> bool:
        """Whether the old parent is now below the entity, so that the parent must leave first."""
        parent = self._known(goal.parent_id)
        return parent is not None and parent.live and any(node.id == goal.id for node in parent.record.chain)

    def _free(self, goal: Goal) -> None:
        """Give the plan's entity in the place a temporary name; if it is new and holds nothing of the plan, drop it."""
        other = self._plan.places.get(goal.place)
        known = None if other is None or other == goal.id else self._known(other)
        if known is None or not known.live or place_of(known.record) != goal.place:
            return
        node = known.record.chain[-1]
        if node.id in self._plan.goals or node.id in self._plan.holders:
            self._tx.manager(node.kind).rename(self._entity(node.id), _waiting(node.id))
        else:
            self._drop(node.id)

    def _drop(self, entity_id: int) -> None:
        known = self._known(entity_id)
        if known is not None and known.live:
            self._tx.manager(known.record.chain[-1].kind).drop(self._entity(entity_id), cascade=True)

    def _enable(self, goal: Goal) -> None:
        """Enable or disable an entity, according to its old state."""
        entity = self._entity(goal.id)
        if goal.in_use != entity.record.chain[-1].in_use:
            manager: Any = self._tx.manager(goal.kind)
            (manager.enable if goal.in_use else manager.disable)(entity)

    def _known(self, entity_id: int) -> Known | None:
        return self._read.by_id([entity_id])[0]

    def _state(self, entity_id: int) -> int | None:
        known = self._known(entity_id)
        return None if known is None else known.state

    def _stands(self, goal: Goal) -> bool:
        known = self._known(goal.id)
        if known is None or known.state != LIVE:
            return False
        return (parent_of(known.record), known.record.chain[-1].name) == (goal.parent_id, goal.name)

    def _entity(self, entity_id: int) -> Entity:
        known = self._known(entity_id)
        if known is None:
            raise EntityNotFound(str(entity_id), f"entity {entity_id} was purged meanwhile; call again")
        return kind_named(known.record.chain[-1].kind).entity(known.record, self._read.origin)

    # --- content

    def _fill(self, entity_id: int) -> None:
        """Give an entity its old document and owned rows, if it is live."""
        known = self._known(entity_id)
        if known is None or not known.live:
            return
        if entity_id in self._docs:
            self._write(self._entity(entity_id), self._docs[entity_id].record.doc)
        kinds = self._plan.rows.get(entity_id, set())
        for kind in ROWS:
            if kind in kinds:
                self._write_rows(self._entity(entity_id), kind)
        if "partition_statistic" in kinds or "partition" in kinds:
            revert_partition_statistics(self._session, self._entity(entity_id), self._then)

    def _write(self, entity: Entity, old: str) -> None:
        kind, doc = kind_named(entity.kind), self._readable(_as_it_goes_back(old, entity), entity.record.doc)
        if doc == entity.record.doc:
            return

        def attempt(view: View) -> Proposal[Entity] | Entity:
            record = find(view, kind, entity)
            names = tuple([node.name for node in record.chain])
            return rewrite(kind, record, names, doc, "[]", self._session.principal)

        mutate(self._session, kind, Call(), "revert", entity, attempt, first_entity)

    def _write_rows(self, owner: Entity, kind: str) -> None:
        old = {row.name: row.doc for row in rows_of(self._then, owner.id, kind) if marked_by(row) is None}
        new = {row.name: row.doc for row in rows_of(self._read, owner.id, kind)}
        old = {name: self._readable(doc, new.get(name)) for name, doc in old.items()}
        rows: OwnedManager[Any] = OwnedManager(self._session, OWNED_KINDS[kind], KINDS[owner.kind])
        rows.put_many(owner, [Row(name, doc, stood=True) for name, doc in old.items()], drop=set(new) - set(old))

    def _readable(self, old: str, now: str | None) -> str:
        """Return an old document, in which the present secrets replace those that nobody can read any more."""
        if now is None or f'"{PREFIX}' not in old or self._session.seals is None:
            return old
        doc, properties = json.loads(old), json.loads(now)["properties"]
        destroyed = self._session.seals.sealer.destroyed()
        return to_json({**doc, "properties": kept_readable(doc["properties"], properties, destroyed)})


def _waiting(entity_id: int) -> str:
    """Return the temporary name of an entity whose step has not run yet."""
    return f"revert {entity_id}"


def _as_it_goes_back(old: str, entity: Entity) -> str:
    """Return the document to write. Its counters never decrease, so no version or column number is given again."""
    doc = without_dropping(old, entity)
    if not entity.doc.keys() & set(COUNTERS):
        return doc
    then = json.loads(doc)
    return dump(
        {**then, **{name: max(then[name], entity.doc[name]) for name in COUNTERS if name in then}}, entity.names
    )


def without_dropping(old: str, entity: Entity) -> str:
    """Return an old document without columns that were being dropped then. Raises DropPending if one is dropped now."""
    for one in entity.doc.get(MARKER, ()):
        raise DropPending(UUID(one["operation"]), path=format_path((*entity.names, one["node"]["name"])))
    if f'"{MARKER}"' not in old:
        return old
    return dump({key: value for key, value in json.loads(old).items() if key != MARKER}, entity.names)
