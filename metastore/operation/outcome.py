"""The outcome of an operation, which ``store.outcome`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metastore.governance.privileges import OWNER
from metastore.kinds.attached import Attached
from metastore.kinds.entity import Entity, Owned
from metastore.operation.kept_result import decode_value, entity_at
from metastore.port.intents import CLAIMABLE, PENDING
from metastore.port.records import Origin, Step


@dataclass(frozen=True)
class Outcome:
    """The outcome of an operation. ``state`` is one of:

    * *committed*: ``result`` is the call's result, also if its answer was lost;
    * *failed*: ``result`` is the error that the call raised;
    * *pending*: announced, and not applied yet; ask again later;
    * *cancelled*: not applied, and no message in flight can apply it any more; repeat the call;
    * *unknown*: no row exists, because the operation never reached this database, or gc has deleted the row.
    """

    state: str
    result: Any = None


def entities_in(result: object) -> set[int]:
    """Return the ids of the entities that a result contains, or that own its rows and relations."""
    if isinstance(result, tuple):
        return set[int]().union(*map(entities_in, result))
    if isinstance(result, Entity):
        return {result.id}
    if isinstance(result, Owned):
        return {result.record.owner_id}
    return {result.target_id} if isinstance(result, Attached) else set()


def outcome_of(steps: Sequence[Step], origin: Origin) -> Outcome:
    """Return the outcome that an operation's rows show; ``origin``: their database."""
    if not steps:
        return Outcome("unknown")
    first = steps[0]
    if first.action == PENDING:
        return Outcome("pending")
    if first.action in CLAIMABLE:
        return Outcome("cancelled")
    if first.seq is None:
        state = "failed" if first.action == "failed" else "committed"
        return Outcome(state, decode_value(first, origin))
    if first.action in ("drop", "purge"):
        return Outcome("committed", True)
    results = [entity_at(step, origin=origin) for step in (steps[:1] if _makes_with_owner(steps) else steps)]
    return Outcome("committed", results[0] if len(results) == 1 else tuple(results))


def _makes_with_owner(steps: Sequence[Step]) -> bool:
    """Whether the rows are those of a user's create: one of the returned entity, one of its owner relation."""
    if len(steps) != 2:
        return False
    made, owner = steps
    return made.action == owner.action == "create" and owner.kind == OWNER and owner.owner_id == made.entity_id
