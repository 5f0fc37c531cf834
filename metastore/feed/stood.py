"""The place of an entity at a position, from which its changes are followed.

gc may have removed the past there, but kept the changes since, because a consumer has not read them. Then these changes
are undone, one by one, from the first position whose past is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore.clock import Clock
from metastore.errors import HistoryGone
from metastore.feed.feed import number_in, position_of, steps_between
from metastore.feed.standing import Standing
from metastore.feed.subject import is_of_entity
from metastore.feed.tracked import Tracked
from metastore.kinds.entity import Entity
from metastore.managers.any_kind import led_to
from metastore.managers.target import Target, in_hand
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.port.conditions import LIVE
from metastore.port.past import NotKept, PastRows
from metastore.port.records import Known, Step

__all__ = ["tracked"]

_MOVES = ("rename", "move", "drop", "restore")


def tracked(session: Session, target: Target, kind: str | None, after: str | None) -> Tracked:
    """Return the filter that follows an entity from a position on.

    Raises EntityNotFound, DropPending, InvalidArgument; HistoryGone if the entity's place at the position is no longer
    known.
    """
    if isinstance(target, Entity):
        entity_id, of = target.id, target.kind
    else:
        node = led_to(session.backend, target, kind).chain[-1]
        entity_id, of = node.id, node.kind
    backend = session.backend if session.access is None else session.access.backend  # users may not see ancestors
    seq = 0 if after is None else number_in(backend, after)
    standing = in_hand(backend, target, lambda: _standing(backend, session.clock, entity_id, of, seq))
    return Tracked(backend, standing, seq)


def _standing(backend: Backend, clock: Clock, entity_id: int, kind: str, seq: int) -> Standing:
    try:
        return _at(backend.past, entity_id, kind, seq)
    except NotKept as kept:
        since = kept.since
    moves = (step for step in steps_between(backend, clock, seq, since, docs=False) if _moves(step, entity_id))
    steps = [step._replace(doc=None, changes=None) for step in moves]
    try:
        standing = _at(backend.past, entity_id, kind, since)
    except NotKept:  # gc has removed the past there meanwhile
        return _standing(backend, clock, entity_id, kind, seq)
    return _undone(backend, standing, steps, since)


def _moves(step: Step, entity_id: int) -> bool:
    return is_of_entity(step) and (step.action in _MOVES or step.entity_id == entity_id)


def _undone(backend: Backend, standing: Standing, steps: Sequence[Step], since: int) -> Standing:
    for step in reversed(steps):
        standing.undo(step)
    if standing.guessed:
        raise HistoryGone(
            position_of(backend.feed_start()[0], since),
            f"entity {standing.id} was purged, and gc has removed its last path; follow an ancestor",
        )
    return standing


def _at(past: PastRows, entity_id: int, kind: str, seq: int) -> Standing:
    """Return the place of an entity at a position. Raises NotKept."""
    (known,) = past.by_id(seq, [entity_id])
    if known is None:  # the entity did not exist yet, or is purged already
        return Standing(entity_id, kind)
    names = tuple(node.name for node in known.record.chain)
    if known.live:
        return Standing(entity_id, kind, names)
    return Standing(entity_id, kind, None, _dropped(past, known, names, seq))


def _dropped(past: PastRows, known: Known, names: tuple[str, ...], seq: int) -> tuple[int, tuple[str, ...]]:
    """Return the nearest dropped entity, itself or an ancestor, and the names from there down to it."""
    ids = [node.id for node in known.record.chain]
    there = past.by_id(seq, ids)
    at = max(n for n, one in enumerate(there) if one is None or one.state != LIVE)
    return ids[at], names[at + 1 :]
