"""What must hold in a whole database, whatever ran: found with SQL and a replay of the feed, not with the store."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import metastore as ms
from metastore.port.leases import PER_TIMELINE
from tests.concurrency.raw import rows
from tests.concurrency.replay import broken_events, tree_of

__all__ = ["leftovers", "seed", "violations"]

Path = str


def seed(url: str, *paths: Path) -> None:
    """Create lake.cat.s, and the schemas and tables at ``paths`` (a table's name starts with "t")."""
    with ms.open(url, principal="seed") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="relational")
        for path in ("lake.cat.s", *paths):
            manager: Any = store.tables if path.rpartition(".")[2].startswith("t") else store.schemas
            manager.create(path, parents=True, if_exists="return")


def violations(url: str, *, collected: bool = False) -> list[str]:
    """Return what is broken. After gc (``collected``) the feed cannot be replayed from its start."""
    found = _broken_rows(url) + _broken_chains(url, collected)
    with ms.open(url) as store:
        if not collected:
            replay, wrong = broken_events(store.changes())
            found += wrong
            differ = set(replay.tree().items()) ^ set(tree_of(store).items())
            found += [f"the feed and the tables differ: {differ}"] if differ else []
        found += [str(v) for v in store.verify()] if hasattr(store, "verify") else []
    return found


def _broken_rows(url: str) -> list[str]:
    """Half commits, lost parents, names twice."""
    queries = {
        "a guard row without its entity": "SELECT id FROM guard WHERE id <> 0 AND id NOT IN (SELECT id FROM entity)",
        "an entity without its guard row": "SELECT id FROM entity WHERE id NOT IN (SELECT id FROM guard)",
        "a row without its parent": "SELECT id FROM guard WHERE id <> 0 AND parent_id NOT IN (SELECT id FROM guard)",
        "an owned row without its owner": """SELECT id FROM owned WHERE owner_id NOT IN (SELECT id FROM entity)
            AND NOT (owner_id = 0 AND kind = 'drop')""",
        "a name twice": """SELECT parent_id, family, key FROM guard WHERE state IN (0, 3)
            GROUP BY parent_id, family, key HAVING count(*) > 1""",
        "a document that is not the last version's": """SELECT e.id FROM entity e
            JOIN operation o ON o.entity_id = e.id AND o.version = e.version WHERE o.doc <> e.doc""",
        "a row below itself": """WITH RECURSIVE below(id) AS (
            SELECT id FROM guard WHERE id = 0 UNION SELECT g.id FROM guard g JOIN below b ON g.parent_id = b.id)
            SELECT id FROM guard WHERE id NOT IN (SELECT id FROM below)""",
    }
    return [f"{what}: {row}" for what, sql in queries.items() for row in rows(url, sql)]


def _broken_chains(url: str, collected: bool) -> list[str]:
    """The versions of each row are 1, 2, 3 … up to the present one, each the effect of one operation.

    The tokens of a lease are such versions, and begin again, far above, on each timeline of the server.
    """
    steps: dict[int, list[int]] = defaultdict(list)
    written = "SELECT entity_id, version FROM operation WHERE seq IS NOT NULL ORDER BY version"
    for entity_id, version in rows(url, written):
        steps[entity_id].append(version)
    wrong: list[str] = []
    present = dict(rows(url, "SELECT id, version FROM entity UNION ALL SELECT id, version FROM owned"))
    for entity_id, versions in steps.items():
        before = versions[0] - 1 if collected else 0
        if any(now != was + 1 and now % PER_TIMELINE != 1 for was, now in pairwise([before, *versions])):
            wrong.append(f"the versions of {entity_id} are not a chain: {versions}")
        if entity_id in present and versions[-1] != present[entity_id]:
            wrong.append(f"{entity_id} is at {present[entity_id]}, its history at {versions[-1]}")
    return wrong + [f"{entity_id} has no history" for entity_id in present.keys() - steps.keys()]


def leftovers(url: str) -> list[str]:
    """What gc should have removed: rows and history that belong to nothing. (The feed's newest step stays.)"""
    queries = {
        "history of nothing": """SELECT entity_id, version, action FROM operation
            WHERE entity_id NOT IN (SELECT id FROM entity) AND entity_id NOT IN (SELECT id FROM owned)
            AND seq < (SELECT max(seq) FROM operation)""",
        "a dropped row": "SELECT id FROM guard WHERE state <> 0",
        "a row that no path leads to": """WITH RECURSIVE live(id) AS (
            SELECT id FROM guard WHERE id = 0
            UNION SELECT g.id FROM guard g JOIN live l ON g.parent_id = l.id WHERE g.state = 0)
            SELECT id FROM guard WHERE id NOT IN (SELECT id FROM live)""",
    }
    return [f"{what}: {row}" for what, sql in queries.items() for row in rows(url, sql)]
