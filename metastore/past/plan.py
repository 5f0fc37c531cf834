"""Plan a revert to a position: which entities move, which are dropped, and which get back their old content.

A plan comes from the differences between now and the position. It is a list of steps, each about one entity. A step
checks the present state when it runs, so a step that runs again changes nothing. The order of the steps:

1. entities get back their places, parents first;
2. new entities are dropped, the topmost first;
3. each entity gets back its document, owned rows and relations;
4. entities that were disabled are disabled again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.feed.position import now
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS, RELATIONSHIPS, kind_named
from metastore.kinds.table.dropping import FinishColumnDrop, FinishPartitionDrop
from metastore.managers.statistics import partition_contents
from metastore.managers.target import Target, look_again
from metastore.names import format_path, parse_path
from metastore.operation.dropping import LookAgain, pending_above
from metastore.operation.guards import key_under
from metastore.operation.session import Session
from metastore.past.diff import Differing, differing, scope_at
from metastore.past.reads import reads_at
from metastore.port.conditions import DROPPING, LIVE, ROOT_ID
from metastore.port.records import ROOT, Known, OwnedRecord, Record
from metastore.port.unreadable import document

__all__ = ["COUNTERS", "ROWS", "Goal", "Plan", "Step", "in_batches", "parent_of", "planned", "rows_of"]

_STAYS = ("source", "crawl", "drop", "job")
"""Kinds that record events, not a state: crawls, drops in steps, jobs. A revert leaves them alone."""
ROWS = ("partition", "statistic", "model_version", "origin")
"""Kinds of owned rows that are put back by name. The statistics of partitions are put back with their partitions."""
COUNTERS = ("last_column_id", "latest_version")
"""Fields of documents that a revert leaves alone, because the number of a column or version is never used again."""
_OF_PARTITIONS = ("partition", "partition_statistic")
_GO_BACK = {*ROWS, *_OF_PARTITIONS}
"""The kinds of owned rows that can be put back."""
_SHOWN = 20
"""How many paths a message names at most."""
_ALL = 1_000_000
"""A limit above the number of rows that one table can have in a transaction."""
_AT_ONCE = 1000
_DESTROYED = (FinishColumnDrop, FinishPartitionDrop)

Step = tuple[Literal["put", "drop", "fill", "disable"], int]
_Place = tuple[int, str, str]


class Goal(NamedTuple):
    """The old place of an entity, to which a revert moves it."""

    id: int
    kind: str
    parent_id: int
    name: str
    place: _Place
    """The parent, the family, and the name as the parent's catalog compares it."""
    depth: int
    in_use: bool


@dataclass
class Plan:
    """The steps of a revert."""

    wanted: list[Differing]
    at: int
    """The position at which the plan was made."""
    run: str | None
    """The server's run in which it was made. In another run, changes to undo may be lost, and their ids used again."""
    tried: bool = False
    goals: dict[int, Goal] = field(default_factory=dict)
    """The entities that exist after the revert, by id."""
    new: list[Differing] = field(default_factory=list)
    """The entities to drop, parents first."""
    places: dict[_Place, int] = field(default_factory=dict)
    """By place: the id of the plan's entity that has the place now."""
    holders: set[int] = field(default_factory=set)
    """The present parents of entities with a goal. None of them is dropped before these entities have left it."""
    rows: dict[int, set[str]] = field(default_factory=dict)
    """By owner: the kinds of owned rows that differ."""
    relations: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """For each entity from which differing relations go: their kinds and slots."""

    def steps(self) -> list[Step]:
        """Return the steps, in order."""
        puts = sorted(self.goals.values(), key=lambda goal: goal.depth)
        filled = dict.fromkeys([*(goal.id for goal in puts), *self.rows, *self.relations])
        return [
            *(("put", goal.id) for goal in puts),
            *(("drop", one.difference.entity_id) for one in self.new),
            *(("fill", entity_id) for entity_id in filled),
            *(("disable", goal.id) for goal in puts if not goal.in_use),
        ]


def planned(session: Session, target: Target, kind: str | None, to: int, *, until: int | None = None) -> Plan:
    """Return the plan for an entity and all below it, without entities that were created after the position ``until``.

    Raises InvalidArgument if something cannot be reverted, EntityNotFound, DropPending, HistoryGone.
    """
    try:
        return _planned(session, target, kind, to, until)
    except LookAgain as changed:
        return look_again(changed, lambda: planned(session, target, kind, to, until=until))


def _planned(session: Session, target: Target, kind: str | None, to: int, until: int | None) -> Plan:
    run, here = session.backend.origin.run, now(session)
    present = reads_at(session, here)
    scope = scope_at(present, target, kind) or 0
    _check_target(session, target, scope, to)
    found = [one for one in differing(present, reads_at(session, to), scope, hidden=True) if not _stays(one)]
    if until is not None:
        found = _without_newcomers(session, found, until)
    plan = Plan([_in_place(one, scope) for one in found], here, run)
    _fill(session, plan, scope, to)
    return plan


def _stays(one: Differing) -> bool:
    """Whether a revert leaves a difference alone: it records an event, or is a metalake's note of an import."""
    kind, path = one.difference.kind, one.difference.path_after or one.difference.path_before or ""
    # keep a metalake's note of an import: without the note, the next import would create the entity again
    return kind in _STAYS or (kind == "origin" and len(parse_path(path)) == 2)


def _without_newcomers(session: Session, found: list[Differing], until: int) -> list[Differing]:
    """Return the differences of entities that existed at the position ``until``."""
    ids = list(dict.fromkeys(one.owner_id or one.difference.entity_id for one in found))
    known = dict(zip(ids, in_batches(reads_at(session, until), ids), strict=True))
    return [one for one in found if known[one.owner_id or one.difference.entity_id] is not None]


def _in_place(one: Differing, scope: int) -> Differing:
    """Return the difference; for the reverted entity itself as "altered", because its name and place do not change."""
    if one.owner_id is not None or one.difference.entity_id != scope:
        return one
    return one._replace(difference=replace(one.difference, action="altered"))


def _check_target(session: Session, target: Target, scope: int, to: int) -> None:
    (old,), (known,) = reads_at(session, to).by_id([scope]), session.backend.by_id([scope])
    path = target.path if isinstance(target, Entity) else format_path(parse_path(target))
    if known is not None and known.dropping and (pending := pending_above(session.backend, known.record.chain)):
        raise pending
    if old is None or not old.live:
        raise EntityNotFound(path, f"{path} was not there at that position; drop it, or choose a later position")
    if known is None or not known.live:
        raise EntityNotFound(path, f"{path} was dropped; restore it, then revert it")


def _fill(session: Session, plan: Plan, scope: int, to: int) -> None:
    entities = [one for one in plan.wanted if one.owner_id is None]
    ids = [one.difference.entity_id for one in entities]
    old = {one.difference.entity_id for one in entities if one.difference.path_after is not None}
    present, reached = dict[int, Known | None](), set[int]()
    pairs = zip(ids, in_batches(session.backend, ids), in_batches(reads_at(session, to), ids), strict=True)
    for i, known, then in pairs:  # each batch of documents is compared, but not kept
        present[i] = known and known._replace(record=known.record._replace(doc=""))
        if i in old and then is not None:
            goal = _goal(then, known if i == scope else None)
            if _is_reached(goal, then, known):
                reached.add(i)
            else:
                plan.goals[i] = goal
    _check_purged(session, plan, present)
    is_reached, stays_gone = _is_reached_row(session, to), _stays_gone(session, plan)
    plan.wanted = [
        one
        for one in plan.wanted
        if not stays_gone(one)
        and not is_reached(one)
        and (one.owner_id is not None or one.difference.entity_id not in reached)
    ]
    plan.new = sorted(
        (one for one in plan.wanted if one.owner_id is None and one.difference.path_after is None),
        key=lambda one: len(parse_path(one.difference.path_before or "")),
    )
    for entity_id, known in present.items():
        if known is not None and known.state == LIVE:
            plan.places[place_of(known.record)] = entity_id
    moving = [goal for goal in plan.goals.values() if not _stands(present[goal.id], goal)]
    for goal in moving:
        plan.holders.update(_below(present[goal.id]))
    for one in plan.wanted:
        if one.relation is not None and one.owner_id is not None:
            plan.relations.setdefault(one.owner_id, set()).add((one.relation.kind, one.relation.slot))
        elif one.owner_id is not None:
            plan.rows.setdefault(one.owner_id, set()).add(one.difference.kind)
    _check_known(session, plan)
    _check_ends(session, plan, present, moving)


def _stays_gone(session: Session, plan: Plan) -> Callable[[Differing], bool]:
    """Return a function that says whether a new entity, row or relation is gone already, and stays gone."""
    new = [one for one in plan.wanted if one.difference.path_after is None]
    chains = _chains(session, sorted({i for one in new for i in _ends_now(one)}))
    gone = _gone(session, plan, chains)

    def stays_gone(one: Differing) -> bool:
        ends = () if one.difference.path_after is not None else _ends_now(one)
        return not gone.isdisjoint(ends) or _stay_apart(plan, [chains[i] for i in ends])

    return stays_gone


def _stay_apart(plan: Plan, ends: Sequence[list[int]]) -> bool:
    """Return whether a relation does not exist, because its ends are in two metalakes, and the plan moves neither."""
    apart = len({chain[0] for chain in ends}) > 1
    return apart and all(plan.goals.keys().isdisjoint(chain) for chain in ends)


def _ends_now(one: Differing) -> tuple[int, ...]:
    """Return the entities that must be live for the entity, row or relation to exist now."""
    if one.relation is not None:
        return one.relation.now
    return (one.difference.entity_id if one.owner_id is None else one.owner_id,)


def _check_known(session: Session, plan: Plan) -> None:
    """Raise InvalidArgument for an entity or row that this program cannot restore, because its kind is unknown."""
    owners = list(plan.rows)
    there = zip(owners, in_batches(session.backend, owners), strict=True)
    kinds = {i: one.record.chain[-1].kind for i, one in there if one is not None}
    dropped = {one.difference.entity_id for one in plan.new}
    unknown = [
        (kind, str(one.difference.path_after or one.difference.path_before))
        for one in plan.wanted
        for kind in _kinds_of(one, kinds)
        if kind not in KINDS and kind not in _GO_BACK and kind not in RELATIONSHIPS and one.owner_id not in dropped
    ]
    if unknown:
        words = ", ".join(sorted({kind for kind, _ in unknown}))
        raise InvalidArgument(
            f"this program does not know the kind {words}, so it cannot put back "
            f"{_listed([path for _, path in unknown])}; revert with a program that declares it"
        )


def _kinds_of(one: Differing, owners: dict[int, str]) -> Iterator[str]:
    """Yield the kinds that a program must know to restore something: its own kind and, for a row, the owner's."""
    yield one.difference.kind
    if one.owner_id is not None and one.relation is None and one.owner_id in owners:
        yield owners[one.owner_id]


def _check_purged(session: Session, plan: Plan, present: dict[int, Known | None]) -> None:
    """Raise DropPending if something is being dropped in steps, InvalidArgument if it was purged or destroyed."""
    lost = list[str]()
    for one in plan.wanted:
        difference = one.difference
        known = present.get(difference.entity_id)
        if difference.entity_id in present and difference.path_before is None:
            if known is not None and known.state == DROPPING:
                pending = pending_above(session.backend, known.record.chain)
                if pending is not None:
                    raise pending
            if known is None or known.doomed:
                lost.append(str(difference.path_after))
        if any(isinstance(change, _DESTROYED) for change in difference.changes):
            lost.append(str(difference.path_after))
    if lost:
        raise InvalidArgument(f"what was purged or destroyed cannot come back: {_listed(lost)}; revert the others")


def _check_ends(session: Session, plan: Plan, present: dict[int, Known | None], moving: Sequence[Goal]) -> None:
    """Raise InvalidArgument if a place, or an end of a relation, is gone and is not restored."""
    below = {goal.id: _below(present[goal.id]) for goal in moving}
    needed = {i for one in plan.wanted if one.relation is not None for i in one.relation.ids}
    needed.update(*below.values(), (goal.parent_id for goal in moving))
    gone = _gone(session, plan, _chains(session, sorted(needed - plan.goals.keys() - {ROOT_ID})))
    lost = list[str]()
    for one in plan.wanted:
        goal = plan.goals.get(one.difference.entity_id) if one.owner_id is None else None
        ends = one.relation.ids if one.relation is not None else ()
        if not gone.isdisjoint(ends if goal is None else (goal.parent_id, *below.get(goal.id, ()))):
            lost.append(str(one.difference.path_after))
    if lost:
        raise InvalidArgument(
            f"the old parents, or the other ends of relations, of these entities do not exist: {_listed(lost)}; "
            "restore what is missing first, or revert only the others"
        )


def _below(known: Known | None) -> list[int]:
    """Return the nodes above an entity, which it must leave; []: the entity itself was dropped."""
    return [] if known is None or known.state != LIVE else [node.id for node in known.record.chain[:-1]]


def _chains(session: Session, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return, by entity, the nodes from its metalake down to it; []: it was purged."""
    return {
        i: [] if known is None else [node.id for node in known.record.chain]
        for i, known in zip(ids, in_batches(session.backend, ids), strict=True)
    }


def _gone(session: Session, plan: Plan, chains: dict[int, list[int]]) -> set[int]:
    """Return those of the entities that are not live, and that the plan does not bring back."""
    above = sorted({node for chain in chains.values() for node in chain} - plan.goals.keys())
    there = {
        i for i, known in zip(above, in_batches(session.backend, above), strict=True) if known and known.state == LIVE
    } | plan.goals.keys()
    return {i for i, chain in chains.items() if not chain or not there.issuperset(_from_goal(plan, chain))}


def _from_goal(plan: Plan, chain: list[int]) -> Iterator[int]:
    """Yield the nodes of a chain from the lowest one that the plan moves; the nodes above it do not matter."""
    lowest = max((at for at, node in enumerate(chain) if node in plan.goals), default=0)
    return islice(chain, lowest, None)


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _goal(then: Known, stays: Known | None) -> Goal:
    """Return the place to which an entity returns; ``stays``: its present record, if it keeps its name and place."""
    node, there = then.record.chain[-1], (stays or then).record
    name, depth = there.chain[-1].name, len(then.record.chain)
    return Goal(node.id, node.kind, parent_of(there), name, place_of(there), depth, node.in_use)


def _is_reached(goal: Goal, then: Known, present: Known | None) -> bool:
    """Whether an entity already has its old content, and is at its goal."""
    if present is None or not _stands(present, goal):
        return False
    same = present.record.doc == then.record.doc or _numberless(present.record) == _numberless(then.record)
    return same and present.record.chain[-1].in_use == goal.in_use


def _numberless(record: Record) -> dict[str, Any]:
    """Return a document without its counters, which a revert leaves alone."""
    return {name: value for name, value in document(record).items() if name not in COUNTERS}


def _is_reached_row(session: Session, to: int) -> Callable[[Differing], bool]:
    """Return a function that says whether the row of a name has its old content, even if its id has changed."""
    then = reads_at(session, to)

    @cache
    def contents(owner_id: int, kind: str) -> list[dict[str, Any]]:
        """Return the old and the present rows by name. A partition's content is its document and its statistics."""
        reads: list[Any] = [then, session.backend]
        if kind in _OF_PARTITIONS:
            return [partition_contents(one, owner_id) for one in reads]
        return [{row.name: row.doc for row in rows_of(one, owner_id, kind)} for one in reads]

    def is_reached(one: Differing) -> bool:
        if one.owner_id is None or one.relation is not None:
            return False
        name = parse_path(one.difference.path_after or one.difference.path_before or "")[-1]
        old, new = contents(one.owner_id, one.difference.kind)
        return old.get(name) == new.get(name)

    return is_reached


def rows_of(reads: Any, owner_id: int, kind: str) -> list[OwnedRecord]:
    """Return all owned rows of a kind."""
    return list(reads.owned(owner_id, kind, "", _ALL, []).rows)


def _stands(known: Known | None, goal: Goal) -> bool:
    return (
        known is not None
        and known.state == LIVE
        and (parent_of(known.record), known.record.chain[-1].name) == (goal.parent_id, goal.name)
    )


def place_of(record: Record) -> _Place:
    """Return the place of an entity, which no other live entity can have."""
    node, above = record.chain[-1], record.chain[-2] if len(record.chain) > 1 else ROOT
    return above.id, kind_named(node.kind).family, key_under(above, node.name)


def parent_of(record: Record) -> int:
    """Return the id of the parent; for a metalake or other top-level entity, that of the root."""
    return record.chain[-2].id if len(record.chain) > 1 else ROOT_ID


def in_batches(reads: Any, ids: Sequence[int]) -> Iterator[Known | None]:
    """Yield the entities with these ids, read in batches from ``reads``."""
    for begin in range(0, len(ids), _AT_ONCE):
        yield from reads.by_id(ids[begin : begin + _AT_ONCE])
