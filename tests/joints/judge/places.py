"""Rule: a call writes and returns the entity that it named: by path the entity at that path, by id that entity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metastore.checker.event import Event
from tests.joints.judge.call import Call
from tests.joints.judge.evidence import Evidence, Found

__all__ = ["misplaced"]

_BEFORE: Final = frozenset({"alter", "rename", "move", "drop", "drop_cascade", "begin_drop"})
"""Actions whose path is where the entity was; that of the others is where it is afterwards."""


def misplaced(evidence: Evidence) -> Iterator[Found]:
    """Yield each call that wrote, or returned, another thing than the one it named."""
    for call in evidence.calls:
        for event in evidence.written.get(call.principal, ()):
            if (why := _elsewhere(call, event)) is not None:
                yield evidence.found("elsewhere", why, call)
        if isinstance(call.answer, dict) and (wanted := call.to or call.path) not in (None, call.answer["path"]):
            message = f"it returned {call.answer['path']}, and was called for {wanted}"
            yield evidence.found("elsewhere", message, call)


def _elsewhere(call: Call, event: Event) -> str | None:
    """Return what is wrong with the place of what a call wrote; the tree says whether the event's own path was true."""
    if event.owner_id is not None or event.other_id is not None or call.action == "bulk":
        return None
    where = event.path_before if call.action in _BEFORE else event.path_after
    if call.steps:
        named = {path for _, path in call.steps}
        return None if {event.path_before, event.path_after} & named else f"it wrote {where}, which it did not name"
    if call.path is not None and where != call.path and call.action not in ("finish", "roll_back"):
        return f"it wrote {where}, and was called for {call.path}"
    if call.to is not None and event.path_after != call.to:
        return f"it took {event.path_after} for its new path, and was called for {call.to}"
    if call.entity_id is not None and event.entity_id != call.entity_id:
        return f"it wrote entity {event.entity_id}, and was called for entity {call.entity_id}"
    return None
