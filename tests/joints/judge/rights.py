"""Rule: once a call that takes a right away has returned, no call of the user rests on it, until it is given back.

The right is the one on a schema. Tables that are there from the beginning never leave their schema, so an entity says
which schema a call of the user was in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.joints.judge.call import Call
from tests.joints.judge.evidence import Evidence, Found

__all__ = ["unlawful"]


def unlawful(evidence: Evidence) -> Iterator[Found]:
    """Yield each call of a user that succeeded while it surely had no right to."""
    revokes, grants = (_of(evidence, action) for action in ("revoke", "grant"))
    schemas = {event.entity_id: event.path_after for event in evidence.events if event.kind == "schema"}
    parents = evidence.parents
    for call in evidence.calls:
        if call.user is None or call.error is not None or not isinstance(call.answer, dict):
            continue
        schema = parents.get(call.answer["id"])
        for revoke in revokes[schema] if schema in schemas else ():
            back = [grant.start for grant in grants[schema] if (grant.end or 1 << 63) > revoke.start]
            if revoke.end is not None and revoke.end < call.start and (call.end or 0) < min(back, default=1 << 63):
                yield evidence.found("right", f"{call.user} had no right on entity {schema} any more", revoke, call)
                break


def _of(evidence: Evidence, action: str) -> defaultdict[int | None, list[Call]]:
    found = defaultdict[int | None, list[Call]](list)
    for call in evidence.calls:
        if call.action == action and (action == "grant" or call.error is None):
            found[call.entity_id].append(call)
    return found
