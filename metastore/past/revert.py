"""Go back: make an entity, and all below it, what it was at a position, in one transaction.

The entity itself keeps its present name and place. Below it, each entity gets back the place, the name and the document
that it had; what was dropped or moved out comes back, what is new is dropped. Ids stay. History goes on: going back is
a change like others. Partitions and statistics of tables go back too; sources, crawls and versions of models do not.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast
from uuid import UUID

from metastore.errors import DropPending, EntityNotFound, InvalidArgument
from metastore.feed.position import now
from metastore.kinds.entity import Entity
from metastore.kinds.kind import dump
from metastore.kinds.registry import OWNED_KINDS, kind_named
from metastore.kinds.table.dropping import MARKER, FinishColumnDrop, FinishPartitionDrop
from metastore.kinds.table.kind import Table
from metastore.managers.create import rewrite
from metastore.managers.mutation import Mutation, first_entity
from metastore.managers.owned import Partitions, Row
from metastore.managers.statistics import Statistics
from metastore.managers.steps import marked_by
from metastore.managers.target import Target, find
from metastore.names import format_path, parse_path
from metastore.operation.dropping import pending_above
from metastore.operation.request import Call, Proposal, View
from metastore.operation.session import Session
from metastore.past.diff import Difference, differences, scope_at
from metastore.past.reads import reads_at
from metastore.port.commit import DROPPING, LIVE, ROOT_ID
from metastore.port.records import Known, Record
from metastore.transaction.transaction import Transaction, run_transaction

__all__ = ["revert"]

_MOST = 10_000
"""How many entities go back in one transaction."""
_ALL = 1_000_000
"""More rows than one table can have in a transaction."""
_STAYS = ("source", "crawl", "model_version", "partition_statistic", "drop")


def revert(session: Session, target: Target, to: int, *, dry_run: bool) -> list[Difference]:
    """Make ``target`` and all below it what it was at ``to``; return what that changes."""
    if dry_run:
        return _wanted(session, target, to)

    def go_back(tx: Transaction) -> list[Difference]:
        wanted = _wanted(session, target, to)
        _Reverting(session, tx, to, wanted).run()
        return wanted

    return run_transaction(session, go_back, Call())


def _wanted(session: Session, target: Target, to: int) -> list[Difference]:
    """Return what differs between now and then. Raises InvalidArgument for what cannot go back, EntityNotFound."""
    here = now(session)
    scope = scope_at(reads_at(session, here), target) or 0
    (old,) = reads_at(session, to).by_id([scope])
    if old is None or not old.live:
        path = target.path if isinstance(target, Entity) else str(target)
        raise EntityNotFound(path, f"{path} was not there at that position; drop it, or choose a later position")
    (known,) = session.backend.by_id([scope])
    if known is not None and known.dropping and (pending := pending_above(session.backend, known.record.chain)):
        raise pending
    found = [one for one in differences(session, here, to, scope, hidden=True) if one.kind not in _STAYS]
    # the entity itself keeps its name and place
    wanted = [one for one in found if one.entity_id != scope or one.action == "altered"]
    _check(session, wanted)
    return wanted


def _check(session: Session, wanted: list[Difference]) -> None:
    if len(wanted) > _MOST:
        raise InvalidArgument(f"{len(wanted)} entities would go back, at most {_MOST} at once; go back part by part")
    back = [one for one in wanted if one.kind not in OWNED_KINDS and one.path_before is None]
    known = session.backend.by_id([one.entity_id for one in back])
    for one in known:
        if one is not None and one.state == DROPPING and (pending := pending_above(session.backend, one.record.chain)):
            raise pending
    lost = [str(one.path_after) for one, k in zip(back, known, strict=True) if k is None or k.doomed]
    destroyed = (FinishColumnDrop, FinishPartitionDrop)
    lost += [str(one.path_after) for one in wanted if any(isinstance(change, destroyed) for change in one.changes)]
    if lost:
        raise InvalidArgument(f"what was purged cannot come back: {', '.join(lost[:5])}; revert what is beside it")
    models = [one.path_after for one in wanted if one.kind == "model" and one.action == "altered"]
    if models:
        raise InvalidArgument(f"a model does not go back, because its versions do not: {models[0]}; revert without it")


class _Goal(NamedTuple):
    """How one entity was, and shall be."""

    id: int
    kind: str
    parent_id: int
    name: str
    record: Record


class _Reverting:
    """One attempt, in a transaction."""

    def __init__(self, session: Session, tx: Transaction, to: int, wanted: list[Difference]) -> None:
        self._tx, self._then = tx, reads_at(session, to)
        self._session = tx._session  # noqa: SLF001  (the managers work on it, and so does this)
        self._read = self._session.backend
        self._wanted = wanted
        self._new = [one for one in wanted if one.kind not in OWNED_KINDS and one.path_after is None]
        old = [one.entity_id for one in wanted if one.kind not in OWNED_KINDS and one.path_after is not None]
        self._goals = [_goal(known) for known in self._then.by_id(old) if known is not None]

    def run(self) -> None:
        """Free the names, drop what is new, bring back and move what was there, then write what it was."""
        moving = [goal for goal in self._goals if self._place_of(goal.id) != (goal.parent_id, goal.name)]
        wished = {(goal.parent_id, goal.name) for goal in moving}
        for goal in moving:
            if self._place_of(goal.id) in wished:  # two that change their names with each other
                self._tx.manager(goal.kind).rename(self._entity(goal.id), f"revert {goal.id}")
        for goal in sorted(moving, key=lambda goal: len(goal.record.chain)):
            self._drop_new()
            self._put(goal)
        self._drop_new()
        for goal in self._goals:
            self._write(goal)
        for kind, rows in (("partition", self._tx.partitions), ("statistic", self._tx.statistics)):
            for owner in self._owners(kind):
                self._write_rows(kind, rows, owner)

    def _drop_new(self) -> None:
        """Drop what is new, the lowest first; what stands below something dropped comes when that is restored."""
        for one in sorted(self._new, key=lambda one: -len(parse_path(one.path_before))):
            known = self._known(one.entity_id)
            if known is not None and known.live:
                self._tx.manager(one.kind).drop(self._entity(one.entity_id), cascade=True)

    def _known(self, entity_id: int) -> Known | None:
        return self._read.by_id([entity_id])[0]

    def _place_of(self, entity_id: int) -> tuple[int, str] | None:
        """Return (parent, name) of a live entity."""
        known = self._known(entity_id)
        return None if known is None or known.state != LIVE else (_parent(known.record), known.record.chain[-1].name)

    def _entity(self, entity_id: int) -> Entity:
        known = self._known(entity_id)
        if known is None:
            raise EntityNotFound(str(entity_id), f"entity {entity_id} was purged meanwhile; call again")
        return kind_named(known.record.chain[-1].kind).entity(known.record, self._read.origin)

    def _put(self, goal: _Goal) -> None:
        """Give an entity its old name and place."""
        above = self._known(goal.parent_id)
        path = (*([] if above is None else [node.name for node in above.record.chain]), goal.name)
        manager = self._tx.manager(goal.kind)
        if self._place_of(goal.id) is None:
            manager.restore(path, id=goal.id, to=path)
        else:
            manager.rename(self._entity(goal.id), path)

    def _write(self, goal: _Goal) -> None:
        """Give an entity its old document, and enable or disable it."""
        kind, entity = kind_named(goal.kind), self._entity(goal.id)
        if goal.record.chain[-1].in_use != entity.record.chain[-1].in_use:
            manager: Any = self._tx.manager(goal.kind)
            entity = (manager.enable if goal.record.chain[-1].in_use else manager.disable)(entity)
        doc = without_dropping(goal.record.doc, entity)
        if doc == entity.record.doc:
            return

        def attempt(view: View) -> Proposal[Entity] | Entity:
            return rewrite(kind, find(view, kind, entity), doc, "[]", self._session.principal)

        Mutation(verb="revert", target=entity, attempt=attempt, replay=first_entity, exclusive=False).run(
            self._session, kind, Call()
        )

    def _owners(self, kind: str) -> list[int]:
        """Return the owners of the rows that differ, if they are there."""
        ids = [one.entity_id for one in self._wanted if one.kind == kind]
        owners = [step.owner_id or 0 for row_id in ids for step in self._then.session.backend.history(row_id, 0, 1)]
        known = [self._known(owner) for owner in dict.fromkeys(owners)]
        return [one.record.chain[-1].id for one in known if one is not None and one.live]

    def _write_rows(self, kind: str, rows: Partitions | Statistics, owner_id: int) -> None:
        old = {
            row.name: row.doc for row in self._then.owned(owner_id, kind, "", _ALL, []).rows if marked_by(row) is None
        }
        new = [row.name for row in self._read.owned(owner_id, kind, "", _ALL, []).rows]
        owner = cast(Table, self._entity(owner_id))
        rows.put_many(owner, [Row(name, doc) for name, doc in old.items()], drop=set(new) - set(old))


def without_dropping(old: str, entity: Entity) -> str:
    """Return a document as it was, without columns that were being dropped. Raises DropPending if some are now."""
    for one in json.loads(entity.record.doc).get(MARKER, ()):
        raise DropPending(UUID(one["operation"]), path=format_path((*entity.names, one["node"]["name"])))
    if f'"{MARKER}"' not in old:
        return old
    return dump({key: value for key, value in json.loads(old).items() if key != MARKER}, entity.names)


def _goal(known: Known) -> _Goal:
    node = known.record.chain[-1]
    return _Goal(node.id, node.kind, _parent(known.record), node.name, known.record)


def _parent(record: Record) -> int:
    return record.chain[-2].id if len(record.chain) > 1 else ROOT_ID
