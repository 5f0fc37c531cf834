"""What became of an operation, as ``store.outcome`` says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metastore.governance.privileges import OWNER
from metastore.operation.kept_result import decode_value, entity_at
from metastore.port.intents import CLAIMABLE, PENDING
from metastore.port.records import Origin, Step

__all__ = ["Outcome", "outcome_of"]


@dataclass(frozen=True)
class Outcome:
    """What became of an operation.

    ``state`` is *committed* (``result``: what the call returned, or would have), *failed* (``result``:
    the error it raised), *pending* (written down, and not applied yet), *cancelled* (not applied, and
    nothing that was sent can apply it any more; a repeat may), or *unknown* (there is no row:
    the operation never came here, or longer ago than the retention).
    """

    state: str
    result: Any = None


def outcome_of(steps: Sequence[Step], origin: Origin) -> Outcome:
    """Return what an operation's rows say of it; ``origin``: of which database they are."""
    if not steps:
        return Outcome("unknown")
    first = steps[0]
    if first.action == PENDING:
        return Outcome("pending")
    if first.action in CLAIMABLE:
        return Outcome("cancelled")
    if first.seq is None:
        state = "failed" if first.action == "failed" else "committed"
        return Outcome(state, decode_value(first.result or '{"value": null}', origin))
    if first.action in ("drop", "purge"):
        return Outcome("committed", True)
    results = [entity_at(step, origin=origin) for step in (steps[:1] if _makes_with_owner(steps) else steps)]
    return Outcome("committed", results[0] if len(results) == 1 else tuple(results))


def _makes_with_owner(steps: Sequence[Step]) -> bool:
    """Whether the rows are those of a user's create: the entity that the call returned, and its owner."""
    if len(steps) != 2:
        return False
    made, owner = steps
    return made.action == owner.action == "create" and owner.kind == OWNER and owner.owner_id == made.entity_id
