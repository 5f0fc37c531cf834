"""Write and read an operation's result, kept in its row for repeats, for lost answers and for ``store.outcome``.

The row itself shows what was applied. Beside it, JSON keeps errors on their merits, and the results of calls that
changed nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from metastore import errors
from metastore.errors import DropPending, MetastoreError, UnreadableRow
from metastore.kinds.attached import Attached
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.registry import kind_named, owned_kind_named
from metastore.names import parse_path
from metastore.port.backend import Backend
from metastore.port.records import Node, Origin, OwnedRecord, Record, Step
from metastore.port.unreadable import reason

T = TypeVar("T")
OF_THE_COMMIT = 0
"""The time of a version that the same commit makes: it is known when the result is read, as the time of its row."""
_UNKNOWN = -1
"""The id of an ancestor in an entity that comes from history: no guard is valid for this id."""

_MERITS = (
    *("InvalidArgument", "EntityNotFound", "EntityAlreadyExists", "NotEmpty", "NotInUse", "VersionConflict"),
    "DropPending",
)


def merits(error: MetastoreError) -> bool:
    """Whether an error is caused by the operation itself, so that it is the operation's result."""
    return type(error).__name__ in _MERITS


def encode_error(error: MetastoreError) -> str:
    """Return an error as JSON."""
    attributes = {k: v if isinstance(v, str | int | None) else str(v) for k, v in vars(error).items() if k[0] != "_"}
    return json.dumps({"error": type(error).__name__, "message": str(error), "attributes": attributes})


def encode_value(value: Entity | Owned | Attached | bool | int | None) -> str:
    """Return the result of a call as JSON."""
    if isinstance(value, Entity):
        return json.dumps({"entity": value.record})
    if isinstance(value, Owned):
        return json.dumps({"owned": value.record})
    if isinstance(value, Attached):
        return json.dumps({"attached": value.to_dict()})
    return json.dumps({"value": value})


def decode_value(first: Step, origin: Origin | None = None) -> Any:
    """Return the value, or the error as a value, that the first row of an operation keeps."""
    text = first.result or '{"value": null}'
    try:
        kept = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise UnreadableRow("the result of an operation", reason(why)) from why
    if "entity" in kept:
        chain, *rest = kept["entity"]
        record = Record(tuple([Node(*node) for node in chain]), *rest)
        if record.modified_at == OF_THE_COMMIT:
            record = record._replace(modified_at=first.time)
        return kind_named(record.chain[-1].kind).entity(record, origin)
    if "owned" in kept:
        owned = OwnedRecord(*kept["owned"])
        return owned_kind_named(owned.kind).row(owned)
    if "attached" in kept:
        return Attached.from_dict(kept["attached"])
    if "error" not in kept:
        return kept["value"]
    cls = getattr(errors, kept["error"], MetastoreError)
    error = cls.__new__(cls)
    error.args = (kept["message"],)
    error.__dict__.update(kept["attributes"])
    if isinstance(error, DropPending):
        error.operation = UUID(str(error.operation))
    return error


def entity_at(step: Step, chain: tuple[Node, ...] | None = None, origin: Origin | None = None) -> Entity | Owned | None:
    """Return the entity as it was after ``step``; None if the step does not contain it.

    ``chain``: the present nodes above the entity, if they are known and lead to the same path. ``origin``: the database
    that has the step.
    """
    kind, path = step.kind or "", step.path_after or step.path_before
    if step.doc is None or path is None or step.entity_id is None or step.version is None:
        return None
    names = parse_path(path)
    first = step.created_at is None and step.action == "create"  # the row is gone, but this step shows its creator
    created_by = step.principal if first else step.created_by
    audit = (created_by, step.created_at or step.time, step.principal, step.time)
    if step.owner_id is not None:
        owned = OwnedRecord(step.entity_id, step.owner_id, kind, names[-1], step.version, step.doc, *audit)
        return owned_kind_named(kind).row(owned)
    if chain is not None and tuple(n.name for n in chain) == names:
        nodes = (*chain[:-1], chain[-1]._replace(scope_version=step.scope_version or 1, in_use=bool(step.in_use)))
    else:
        nodes = (
            *_unknown(names[:-1]),
            Node(step.entity_id, kind, names[-1], step.scope_version or 1, bool(step.in_use), False),
        )
    return kind_named(kind).entity(Record(nodes, step.version, step.doc, *audit), origin)


@lru_cache(4096)
def _unknown(names: tuple[str, ...]) -> tuple[Node, ...]:
    """Return nodes with names only. They are cached, because a reader of the feed meets the same names repeatedly."""
    return tuple([Node(_UNKNOWN, "", name, 0, True, False) for name in names])


def with_origin(steps: list[Step], backend: Backend) -> list[Step]:
    """Return an operation's steps. If a step's row is gone, take its creator and time from history, if kept there."""
    return [_with_origin(step, backend) for step in steps]


def _with_origin(step: Step, backend: Backend) -> Step:
    made_here = step.action == "create"  # this step has the creator and the time
    if step.created_at is not None or step.seq is None or step.entity_id is None or made_here:
        return step
    for origin in backend.history(step.entity_id, 0, 1):
        if origin.action == "create":
            return step._replace(created_by=origin.principal, created_at=origin.time)
    return step


def replay(steps: Sequence[Step], applied: Callable[[Sequence[Step]], T]) -> T:
    """Return the result of a decided operation, or raise its error; ``applied`` makes the result from the rows."""
    first = steps[0]
    if first.seq is not None:
        return applied(steps)
    value = decode_value(first)
    if isinstance(value, MetastoreError):
        raise value
    kept: T = value
    return kept
