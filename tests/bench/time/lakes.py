"""Lakes with a long past, written by the server itself as the library would leave them behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from tests.bench.core.setting import CATALOG, COLUMNS, document, new_lake
from tests.servers.postgres import Databases, database_of

__all__ = ["VERSIONS", "Lakes", "add_tables", "settle"]

VERSIONS = 100
"""How many versions each table of a long history has."""

_FILL = (
    """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
SELECT %(base)s::bigint + n, %(parent)s::bigint, 'table', 'table', 'table_' || n, 'table_' || n, false, 0, true, 1
FROM generate_series(1, %(count)s::int) n""",
    """INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
SELECT %(base)s::bigint + n, %(versions)s::int, %(doc)s::text, 'bench', %(now)s::bigint, 'bench', %(now)s::bigint
FROM generate_series(1, %(count)s::int) n""",
    # one version of all tables after the other, so that the versions of one table lie far apart
    """INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, principal, time,
  path_before, path_after, changes, scope_version, in_use, doc, parent_id, name, fold, state, family, key)
SELECT 99, md5(%(base)s::text || '/' || v || '/' || n)::uuid, 0, nextval('change_seq'), %(base)s::bigint + n, v,
  'table', CASE v WHEN 1 THEN 'create' ELSE 'alter' END, 'bench', %(now)s::bigint + v,
  CASE v WHEN 1 THEN NULL ELSE %(path)s::text || '.table_' || n END, %(path)s::text || '.table_' || n,
  CASE v WHEN 1 THEN '[]' ELSE '[{"change":"SetProperty","key":"k","value":"' || v || '"}]' END, 1, true,
  %(doc)s::text, %(parent)s::bigint, 'table_' || n, false, 0,
  CASE v WHEN 1 THEN 'table' END, CASE v WHEN 1 THEN 'table_' || n END
FROM generate_series(1, %(versions)s::int) v, generate_series(1, %(count)s::int) n ORDER BY v, n""",
    "SELECT setval('entity_id_seq', %(base)s::bigint + %(count)s::int)",
)


@dataclass(frozen=True)
class Lakes:
    """The lakes of one server. ``kept``: the server stays, so that what was made there is used again."""

    server: Databases
    kept: bool

    def lake(self, **schemas: tuple[int, int]) -> str:
        """Return the URL of a lake whose schemas have so many tables of so many versions; make it if there is none."""
        name = "lake_" + "_".join(f"{count}x{versions}" for count, versions in schemas.values())
        if self.kept and name in self._databases():
            return self.server.url(name)
        url = new_lake(self.server, *schemas)
        for schema, (count, versions) in schemas.items():
            add_tables(url, schema, count, versions)
        settle(url)
        return self._named(url, name) if self.kept else url

    def leave(self, url: str) -> None:
        """Drop a lake that nobody uses again."""
        if not self.kept:
            self.server.drop_database(url)

    def _databases(self) -> list[str]:
        with _connected(self.server.url()) as connection:
            return [name for (name,) in connection.execute("SELECT datname FROM pg_database")]

    def _named(self, url: str, name: str) -> str:
        """Give a lake its name at the end, so that one that was not finished is not used."""
        with _connected(self.server.url()) as connection:
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(database_of(url)), sql.Identifier(name)))
        return self.server.url(name)


def add_tables(url: str, schema: str, count: int, versions: int = VERSIONS) -> None:
    """Give a schema so many tables, each with so many versions."""
    with _connected(url) as connection:
        connection.execute("SET synchronous_commit = off")
        parent = connection.execute("SELECT id FROM guard WHERE kind = 'schema' AND key = %s", (schema,)).fetchone()
        base = connection.execute("SELECT nextval('entity_id_seq')").fetchone()
        assert parent
        assert base
        values = {"parent": parent[0], "base": base[0], "now": 1_700_000_000_000_000, "count": count}
        values |= {"versions": versions, "doc": document(COLUMNS[:2]), "path": f"{CATALOG}.{schema}"}
        for statement in _FILL:
            connection.execute(statement, values, prepare=False)


def settle(url: str) -> None:
    """Let the server know its tables, and have written what it must."""
    with _connected(url) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _connected(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
