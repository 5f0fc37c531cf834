"""Intents, helps and marks made by hand, for the contract's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any
from uuid import UUID

from metastore.clock import SYSTEM
from metastore.kinds.entity import Entity
from metastore.operation.helping import own_guards
from metastore.port.commit import Cause, CommitOutcome, Committed, Conflicted
from metastore.port.intents import FORMAT, Entry, Help, Mark, Resolution
from metastore.port.records import Step
from tests.contract.ground import Ground

new_id = SYSTEM.operation_id


def document(comment: str | None, **properties: str) -> str:
    """Return the document of a schema."""
    return json.dumps({"comment": comment, "properties": properties}, ensure_ascii=False)


def comment(text: str) -> str:
    """Return the changes of an intent that sets the comment."""
    return json.dumps([{"change": "SetComment", "text": text}], ensure_ascii=False)


def entry(entity: Entity, text: str = "x", **fields: Any) -> Entry:
    """Return an intent that sets the comment of ``entity``."""
    defaults: dict[str, Any] = {
        "operation_id": new_id(),
        "action": "pending",
        "principal": "hand",
        "entity_id": entity.id,
        "kind": entity.kind,
        "path": entity.path,
        "changes": comment(text),
        "format": FORMAT,
        "seconds": 60.0,
    }
    return Entry(**defaults | fields)


def announce(ground: Ground, entity: Entity, text: str = "x", **fields: Any) -> UUID:
    """Write such an intent down."""
    made = entry(entity, text, **fields)
    committed(ground.backend.write_down(made))
    return made.operation_id


def applied(operation_id: UUID, doc: str, principal: str | None = "hand", **fields: Any) -> Resolution:
    """Return what becomes of an intent that is applied."""
    return Resolution(operation_id, "alter", principal, doc=doc, **fields)


def helping(entity: Entity, *resolutions: Resolution, **fields: Any) -> Help:
    """Return a help for ``entity`` as it is in hand."""
    defaults: dict[str, Any] = {
        "guards": own_guards(entity.record.chain),
        "id": entity.id,
        "version": entity.version,
        "path": entity.path,
        "resolutions": resolutions,
    }
    return Help(**defaults | fields)


def row_of(ground: Ground, operation_id: UUID) -> Step:
    """Return the one row of an operation."""
    (row,) = ground.backend.steps(operation_id)
    return row


def committed(outcome: CommitOutcome) -> Committed:
    """Return an outcome that must be Committed."""
    assert isinstance(outcome, Committed), outcome
    return outcome


def conflict(outcome: CommitOutcome, *causes: Cause) -> Conflicted:
    """Return an outcome that must be a conflict with one of ``causes``."""
    assert isinstance(outcome, Conflicted), outcome
    assert outcome.cause in causes
    return outcome


def mark(ground: Ground, entity: Entity, seconds: float = 60.0, **fields: Any) -> UUID:
    """Announce an exclusive operation on ``entity``."""
    operation_id: UUID = fields.pop("operation_id", None) or new_id()
    committed(ground.backend.mark(Mark(operation_id, entity.id, seconds, **fields)))
    return operation_id


def freeze(ground: Ground, entity: Entity, seconds: float = 60.0) -> UUID:
    """Announce a freeze of ``entity`` as it is in hand."""
    return mark(ground, entity, seconds, scope_version=entity.scope_version)


def unmarked(ground: Ground, entity: Entity) -> bool:
    """Whether ``entity`` carries no mark."""
    return all(found.mark is None for found in ground.backend.marked([entity.id]))


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Ask until ``condition`` says something true, and return that."""
    ends = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < ends, "it never came"
        sleep(0.005)
    return found
