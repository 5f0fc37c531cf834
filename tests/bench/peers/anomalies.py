"""What went wrong, counted in the tables and in what the clients were told: the same for every contender.

The history itself tells most: a table's versions, each with its document, change and path. What clients were told
is held against it where it was recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["RULES", "in_records", "in_tables", "last_alters"]

_STEPS = """SELECT entity_id, version, action, changes, path_before, doc::jsonb AS doc,
  lag(version) OVER w AS version_was, lag(action) OVER w AS action_was, lag(path_after) OVER w AS path_was,
  lag(doc::jsonb) OVER w AS doc_was
FROM operation WHERE seq IS NOT NULL AND entity_id IS NOT NULL WINDOW w AS (PARTITION BY entity_id ORDER BY version)"""

RULES = {
    "lost update": f"""SELECT count(*) FROM ({_STEPS}) s
WHERE action = 'alter' AND doc <> doc_was || jsonb_build_object('properties', (doc_was -> 'properties')
    || jsonb_build_object(changes::jsonb -> 0 ->> 'key', changes::jsonb -> 0 ->> 'value'))""",
    "broken chain": f"SELECT count(*) FROM ({_STEPS}) s WHERE version <> coalesce(version_was, 0) + 1",
    "changed after its drop": f"SELECT count(*) FROM ({_STEPS}) s WHERE action_was = 'drop'",
    "written by a path that led elsewhere": f"SELECT count(*) FROM ({_STEPS}) s WHERE path_before <> path_was",
    "two of one name": """SELECT count(*) FROM (SELECT FROM guard WHERE state = 0
  GROUP BY parent_id, family, key HAVING count(*) > 1) s""",
    "orphan": """SELECT count(*) FROM guard g JOIN guard p ON p.id = g.parent_id
WHERE g.state = 0 AND p.state <> 0 AND g.id <> 0""",
    "history differs from the tables": """SELECT count(*) FROM entity e JOIN guard g ON g.id = e.id JOIN LATERAL (
  SELECT version, doc, path_after FROM operation o WHERE o.entity_id = e.id AND seq IS NOT NULL
  ORDER BY version DESC LIMIT 1) o ON true
WHERE o.version <> e.version OR o.doc <> e.doc OR (o.path_after IS NULL) <> (g.state <> 0)
  OR (g.state = 0 AND split_part(o.path_after, '.', -1) <> g.name)""",
}
"""By what is counted: a statement that counts it."""

_TOLD = """SELECT principal, count(*) FROM operation
WHERE seq IS NOT NULL AND principal LIKE '%%/%%' GROUP BY principal"""
_KEPT = """SELECT e.id, p.key, p.value FROM entity e, jsonb_each_text((e.doc::jsonb) -> 'properties') p
WHERE p.key LIKE 'c%%'"""


def in_tables(url: str) -> Counter[str]:
    """Count what the history shows."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = {rule: connection.execute(text.encode()).fetchone() for rule, text in RULES.items()}
    return Counter({rule: row[0] for rule, row in found.items() if row is not None and row[0]})


def in_records(url: str, folder: Path) -> Counter[str]:
    """Count what clients were told that the tables contradict.

    An operation whose client was told that it was applied has one event; one whose client was told that it was not has
    none. The value of a client's last alter of a table is there, because no other client sets that property.
    """
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        events: dict[str, int] = dict(connection.execute(_TOLD).fetchall())
        kept = {(entity, key): value for entity, key, value in connection.execute(_KEPT)}
    found: Counter[str] = Counter()
    for client, operation in _operations(folder):
        written = events.get(f"{client}/{operation['number']}", 0)
        applied = operation["outcome"] == "applied"
        if operation["outcome"] != "unknown" and written != applied:
            found["acknowledged, and not there" if applied else "applied, and not acknowledged"] += 1
    found["acknowledged alter lost"] = sum(kept.get(which) != value for which, value in last_alters(folder).items())
    return +found


def last_alters(folder: Path) -> dict[tuple[int, str], str]:
    """Return what each client set last in each table, by the table's id and the property that is the client's own."""
    return {
        (operation["entity_id"], client.partition("w")[0]): str(operation["number"])
        for client, operation in _operations(folder)
        if operation["action"] == "alter" and operation["outcome"] == "applied"
    }


def _operations(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for log in sorted((folder / "log").glob("*.jsonl")):
        for line in log.read_text().splitlines():
            if operation := json.loads(line).get("end"):
                yield log.stem, operation
