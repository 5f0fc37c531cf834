"""Data keys on PostgreSQL: :mod:`metastore.port.secret_keys` with one statement for each call."""

from __future__ import annotations

import json
from collections.abc import Sequence

from metastore.backends.postgres.fragments import DURABLE, NOW
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import Fetch
from metastore.port.secret_keys import KeyRow, Redaction

_ROWS = "SELECT number, wrapped, wrapper, created_at FROM secret_key"
ADD = f"""INSERT INTO secret_key (number, wrapped, wrapper, created_at)
  SELECT %(number)s::integer, %(wrapped)s::text, %(wrapper)s::text, {NOW} WHERE {DURABLE}
  ON CONFLICT (number) DO NOTHING RETURNING 1"""
REWRAP = f"""UPDATE secret_key SET wrapped = %(wrapped)s::text, wrapper = %(wrapper)s::text
  WHERE number = %(number)s::integer AND wrapped IS NOT DISTINCT FROM %(before)s::text AND {DURABLE} RETURNING 1"""
REDACT = without_comments(f"""
-- The rows to redact, each with its present and its new texts.
WITH wanted AS MATERIALIZED (
  SELECT (w->>0)::uuid AS id, (w->>1)::integer AS ordinal, w->>2 AS doc, w->>3 AS changes, w->>4 AS result,
    w->>5 AS old_doc, w->>6 AS old_changes, w->>7 AS old_result
  FROM json_array_elements(%(rows)s::json) AS w)
UPDATE operation o SET doc = w.doc, changes = w.changes, result = w.result FROM wanted w
WHERE o.operation_id = w.id AND o.ordinal = w.ordinal AND {DURABLE}
  AND (o.doc, o.changes, o.result) IS NOT DISTINCT FROM (w.old_doc, w.old_changes, w.old_result)
RETURNING 1""")


class PostgresSecretKeys:
    """The implementation of :class:`metastore.port.secret_keys.SecretKeys`."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def rows(self) -> list[KeyRow]:
        return [KeyRow(*row) for row in self._fetch(f"{_ROWS} ORDER BY number", {})]

    def add(self, number: int, wrapped: str, wrapper: str) -> KeyRow:
        self._fetch(ADD, {"number": number, "wrapped": wrapped, "wrapper": wrapper})
        (row,) = self._fetch(f"{_ROWS} WHERE number = %(number)s::integer", {"number": number})
        return KeyRow(*row)

    def rewrap(self, row: KeyRow, wrapped: str | None, wrapper: str) -> bool:
        values = {"number": row.number, "wrapped": wrapped, "wrapper": wrapper, "before": row.wrapped}
        return bool(self._fetch(REWRAP, values))

    def redact(self, rows: Sequence[Redaction]) -> int:
        wanted = [[str(r.operation_id), r.ordinal, r.doc, r.changes, r.result, *r.before] for r in rows]
        return len(self._fetch(REDACT, {"rows": json.dumps(wanted)}))

    def erase(self) -> bool:
        # only a rewrite by the table's owner, under an exclusive lock, erases old row versions: docs/operations.md
        return False
