"""Rule: each entity that a call returned has the document of its version in the feed, so it was committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.joints.judge.evidence import Evidence, Found

__all__ = ["never_committed"]


def never_committed(evidence: Evidence) -> Iterator[Found]:
    """Yield each call that returned a document which no commit made."""
    documents = _documents(evidence)
    for call in evidence.calls:
        for one in _entities(call.answer):
            committed = documents.get((one["id"], one["version"]))
            if committed is None:
                message = f"it returned version {one['version']} of entity {one['id']}, which the feed does not have"
                yield evidence.found("document", message, call)
            elif wrong := [name for name in committed if committed[name] != one[name]]:
                shown = ", ".join(f"{name} {one[name]} instead of {committed[name]}" for name in wrong)
                message = f"it returned what was never committed as version {one['version']} of {one['path']}: {shown}"
                yield evidence.found("document", message, call)


def _documents(evidence: Evidence) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the document of each version; a rename and its like keep the one before."""
    last: dict[int, dict[str, Any]] = {}
    found = {}
    for event, document in zip(evidence.events, evidence.documents, strict=True):
        if event.owner_id is None and event.other_id is None:
            now = last[event.entity_id] = document or last.get(event.entity_id, {})
            found[event.entity_id, event.version] = now
    return found


def _entities(answer: Any) -> Iterator[dict[str, Any]]:
    if isinstance(answer, dict):
        yield answer
    elif isinstance(answer, list):
        for one in answer:
            yield from _entities(one)
