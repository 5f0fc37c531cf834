"""What was committed under leases, read from the database itself: nothing outside of its token's time."""

from __future__ import annotations

import json

from metastore.port.leases import PER_TIMELINE
from tests.concurrency.raw import rows

__all__ = ["late_commits"]


def late_commits(url: str) -> list[str]:
    """Return what is wrong: tokens that do not grow by one, and commits that stand outside of their token's interval.

    In the order of the feed, a token is the lease's from its acquire or takeover up to the lease's next event.
    """
    wrong: list[str] = []
    last: dict[int, int] = {}
    holds: dict[int, int] = {}
    sql = """SELECT seq, kind, action, entity_id, version, fences FROM operation
        WHERE seq IS NOT NULL AND (kind = 'lease' OR fences IS NOT NULL) ORDER BY seq"""
    for seq, kind, action, entity_id, version, fences in rows(url, sql):
        for lease_id, token in json.loads(fences or "[]"):
            if holds.get(lease_id) != token:
                wrong.append(f"{seq}: under token {token} of lease {lease_id}, which had {holds.get(lease_id)}")
        if kind != "lease":
            continue
        before = last.get(entity_id, 0)
        # the first token on another timeline of the server is far above
        if version != before + 1 and not (version > before and version % PER_TIMELINE == 1):
            wrong.append(f"{seq}: token {version} of lease {entity_id} comes after {last.get(entity_id)}")
        held = entity_id in holds
        if held != (action in ("takeover", "release", "break")):
            wrong.append(f"{seq}: {action} of lease {entity_id}, which {'is' if held else 'nobody'} held")
        last[entity_id] = version
        holds.pop(entity_id, None)
        if action in ("acquire", "takeover"):
            holds[entity_id] = version
    return wrong
