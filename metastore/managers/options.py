"""What every mutation takes besides its own arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict
from uuid import UUID

from metastore.arguments import known_keywords
from metastore.kinds.entity import Entity
from metastore.managers.create import IfExists
from metastore.operation.request import Call, Fencing

__all__ = ["CALL_OPTIONS", "BulkOptions", "CallOptions", "CreateOptions", "call_from", "call_of"]

_NO_OPTIONS = Call()


class BulkOptions(TypedDict, total=False):
    """What ``create_many`` takes: who asks, how long each of its commits may take (seconds), and under which lease.

    A commit under a lease requires its token: if that was taken over, broken or released, or its time is over, nothing
    is written and LeaseLost is raised.
    """

    principal: str | None
    deadline: float | None
    lease: Fencing | None


class CallOptions(BulkOptions, total=False):
    """What every mutation takes besides: its operation id (or ``ms.key(…)``), under which it is applied at most once.

    A repeat with the same id, for as long as operations are kept, returns the first result, or
    raises the first error; with other arguments it raises OperationIdReused.
    """

    operation_id: UUID | str | None


class CreateOptions(CallOptions, total=False):
    """What every create takes besides the fields of its kind."""

    parent: Entity | None
    comment: str | None
    properties: Mapping[str, str]
    if_exists: IfExists
    parents: bool


CALL_OPTIONS = CallOptions.__annotations__ | BulkOptions.__annotations__


def call_from(options: Mapping[str, Any]) -> Call:
    """Return the options of a call whose keywords are known."""
    return Call(options.get("principal"), options.get("deadline"), options.get("operation_id"), options.get("lease"))


def call_of(options: CallOptions) -> Call:
    """Return the checked options of a call."""
    if not options:
        return _NO_OPTIONS
    known_keywords(options, CALL_OPTIONS)
    return call_from(options)
