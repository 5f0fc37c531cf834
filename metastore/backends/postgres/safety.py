"""Check a PostgreSQL server, and the role of this connection, before a store relies on them.

It reads catalogs, settings and ``info``, and changes nothing. Every role that may connect can use it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.home import CACHED, HIDDEN
from metastore.backends.postgres.read_errors import raise_read_error
from metastore.clock import Clock
from metastore.urls import Url

_ALL: Final = "SELECT INSERT UPDATE DELETE"
RIGHTS: Final = {
    **dict.fromkeys(
        ("guard", "entity", "owned", "relation", "operation", "lease_waiter", "staged", "ticket", "pin", "consumer"),
        _ALL,
    ),
    **dict.fromkeys(("cache_member", "cache_announcement"), _ALL),
    "lease": "SELECT INSERT UPDATE",
    "secret_key": "SELECT INSERT UPDATE",
    "info": "SELECT UPDATE",
    "entity_id_seq": "SELECT USAGE",
    "change_seq": "SELECT USAGE",
    "cache_generation": "SELECT USAGE UPDATE",
}
"""The rights that a writing store needs, by table and sequence: those of the writer in docs/operations.md."""

_SERVER = f"""SELECT current_user, current_setting('fsync'), current_setting('full_page_writes'),
  extract(epoch FROM clock_timestamp())::float8, to_regclass('info')::oid, ARRAY({CACHED}),
  (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)"""

_FORMAT = "SELECT format, compatible_from FROM info"

# a sequence has other rights than a table, so each of the two functions fails for the rights of the other
_MISSING = """WITH needed AS (
  SELECT name, to_regclass(name) AS place, privilege
  FROM unnest(%(names)s::text[], %(privileges)s::text[]) AS of_one(name, privileges),
    string_to_table(privileges, ' ') AS privilege
)
SELECT name, string_agg(privilege, ', ') FROM needed JOIN pg_class c ON c.oid = place
WHERE NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(place, privilege)
  ELSE has_table_privilege(place, privilege) END
GROUP BY name ORDER BY name"""

# the owner of a table may drop it; with CREATE on its schema, a role could hide tables behind its own
_TOO_MANY = """SELECT
  ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.oid = ANY (places) AND pg_has_role(c.relowner, 'USAGE')),
  (SELECT has_schema_privilege(relnamespace, 'CREATE') FROM pg_class WHERE oid = to_regclass('info')),
  ARRAY(SELECT c.relname::text FROM pg_class c
    WHERE c.oid = ANY (places) AND c.relkind <> 'S' AND has_table_privilege(c.oid, 'TRUNCATE'))
FROM (SELECT array_agg(to_regclass(name)::oid) AS places FROM unnest(%(names)s::text[]) AS name) AS ours"""


class Answers(NamedTuple):
    """The database's answers. ``formats``: (format, compatible_from); None: the schema is missing or hidden."""

    role: str
    unsafe_settings: list[str]
    apart: float
    formats: tuple[int, int] | None
    cached: list[str]
    missing: list[str]
    too_many: list[str]


def ask(url: Url, deadline: float, clock: Clock) -> Answers:
    """Return the database's answers. ``deadline`` in seconds. Raises BackendUnavailable, BackendRefused."""
    pool = Pool(url, deadline)
    try:
        with pool.connection() as connection, connection.cursor() as cursor:
            return _ask(cursor, clock)
    except psycopg.Error as error:
        raise_read_error(error)
    finally:
        pool.close()


def _ask(cursor: psycopg.Cursor[tuple[object, ...]], clock: Clock) -> Answers:
    before = clock.micros() / 1e6
    ((role, fsync, pages, now, info, cached, superuser),) = _rows(cursor, _SERVER)
    after = clock.micros() / 1e6
    unsafe = [f"{name}=off" for name, value in (("fsync", fsync), ("full_page_writes", pages)) if value == "off"]
    apart = max(before - now, now - after, 0.0)
    if info is None:
        hidden = [f"USAGE on the schema {schema}" for schema, _ in _rows(cursor, HIDDEN)]
        lacking = hidden or ["all rights while there are no tables"]
        return Answers(role, unsafe, apart, None, cached, lacking, ["is a superuser"] if superuser else [])
    names = {"names": list(RIGHTS), "privileges": list(RIGHTS.values())}
    missing: dict[str, str] = dict(_rows(cursor, _MISSING, names))
    readable = "SELECT" not in missing.get("info", "")
    formats = next(iter(_rows(cursor, _FORMAT)), None) if readable else None
    lacking = [f"{privileges} on {name}" for name, privileges in missing.items()]
    return Answers(role, unsafe, apart, formats, cached, lacking, _too_many(cursor, names, superuser))


def _too_many(cursor: psycopg.Cursor[tuple[object, ...]], names: dict[str, list[str]], superuser: bool) -> list[str]:
    """Return the role's rights on the tables that no store needs."""
    if superuser:
        return ["is a superuser"]
    ((owned, creates, truncates),) = _rows(cursor, _TOO_MANY, names)
    if owned:
        return ["owns the tables"]
    found = ["may create tables in their schema"] if creates else []
    return found + ([f"may truncate {', '.join(sorted(truncates))}"] if truncates else [])


def _rows(
    cursor: psycopg.Cursor[tuple[object, ...]], statement: str, parameters: dict[str, list[str]] | None = None
) -> list[tuple[Any, ...]]:
    return cursor.execute(statement.encode(), parameters).fetchall()
