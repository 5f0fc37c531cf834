"""The statements of all peers, by hand: the same rows as ours, in as few statements as their locks allow.

``load`` and ``write`` are what an alter is made of: a document is read, changed by the client, and written. Create,
drop and rename are one statement each, from the path to the event. Where rows are locked (``rows=True``), the
ancestors' guards are locked FOR SHARE and the node's FOR UPDATE, from the root down; an alter locks the node's document
too: who waits for a lock sees the newest version of what it locks, and only of that.
"""

from __future__ import annotations

from tests.bench.core.setting import COLUMNS, document

__all__ = ["ADVISORY", "DOCUMENT", "create", "drop", "load", "rename", "write"]

DOCUMENT = document(COLUMNS)
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_LEVELS = ("metalake", "catalog", "schema", "table")
_LOG = """INSERT INTO operation (writer, generation, operation_id, ordinal, seq, entity_id, version, owner_id, kind,
  action, principal, time, path_before, path_after, changes, scope_version, in_use, doc,
  parent_id, name, fold, state, family, key)
SELECT 99, 0, %(operation_id)s::uuid, 0, nextval('change_seq'), {row}"""
"""The generation is that of a program without the cache; what checks it is left out here."""


def _chain(depth: int) -> str:
    """The guards from the root down to the name of this depth."""
    tables = [
        f"JOIN guard g{n} ON g{n}.parent_id = g{n - 1}.id AND g{n}.family = '{_LEVELS[n - 1]}'"
        f" AND g{n}.key = %({_LEVELS[n - 1]})s::text AND g{n}.state = 0"
        for n in range(2, depth + 1)
    ]
    return "FROM guard g1 " + "\n  ".join(tables)


_TOP = "WHERE g1.parent_id = 0 AND g1.family = 'metalake' AND g1.key = %(metalake)s::text AND g1.state = 0"


def _locks(rows: bool, above: int, node: str) -> str:
    if not rows:
        return ""
    shared = ", ".join(f"g{n}" for n in range(1, above + 1))
    return f"\n  FOR SHARE OF {shared} FOR UPDATE OF {node}"


def load(*, rows: bool) -> str:
    """Id, version and document of a table by its path."""
    return f"""SELECT g4.id, e.version, e.doc
  {_chain(4)}
  JOIN entity e ON e.id = g4.id
  {_TOP}{_locks(rows, 3, "g4, e")}"""


def write() -> str:
    """The second half of an alter: the holder of the lock overwrites."""
    row = """a.id, a.version, NULL, 'table', 'alter', %(principal)s::text, a.modified_at,
  %(path)s::text, %(path)s::text, %(changes)s::text, g.scope_version, g.in_use, %(doc)s::text,
  g.parent_id, g.name, g.fold, g.state, NULL, NULL"""
    return f"""WITH altered AS (
  UPDATE entity SET version = version + 1, doc = %(doc)s::text, modified_by = %(principal)s::text, modified_at = {_NOW}
  WHERE id = %(id)s::bigint RETURNING id, version, modified_at)
{_LOG.format(row=row)}
FROM altered a JOIN guard g ON g.id = a.id
RETURNING entity_id, version"""


def create(*, rows: bool) -> str:
    """No row: the name is taken."""
    row = """id, 1, NULL, 'table', 'create', %(principal)s::text, created_at,
  NULL, %(path)s::text, '[]', 1, true, %(doc)s::text, parent_id, name, false, 0, 'table', name"""
    return f"""WITH parent AS MATERIALIZED (
  SELECT g3.id {_chain(3)}
  {_TOP}{_locks(rows, 2, "g3")}),
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT nextval('entity_id_seq'), id, 'table', 'table', %(table)s::text, %(table)s::text, false, 0, true, 1 FROM parent
  ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING
  RETURNING id, parent_id, name),
made AS (
  INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT id, 1, %(doc)s::text, %(principal)s::text, now.at, %(principal)s::text, now.at
  FROM placed, (SELECT {_NOW} AS at) AS now
  RETURNING id, created_at)
{_LOG.format(row=row)}
FROM made JOIN placed USING (id)
RETURNING entity_id, version"""


def _exclusive(rows: bool, change: str, action: str, path_after: str, named: str) -> str:
    row = f"""id, version, NULL, 'table', '{action}', %(principal)s::text, modified_at,
  %(path)s::text, {path_after}, '[]', scope_version, in_use, doc, parent_id, name, fold, state, {named}"""
    return f"""WITH node AS MATERIALIZED (
  SELECT g4.id {_chain(4)}
  {_TOP}{_locks(rows, 3, "g4")}),
stands AS (
  UPDATE guard g SET scope_version = g.scope_version + 1, {change}
  FROM node WHERE g.id = node.id
  RETURNING g.id, g.scope_version, g.in_use, g.parent_id, g.name, g.fold, g.state, g.family, g.key),
changed AS (
  UPDATE entity e SET version = e.version + 1, modified_by = %(principal)s::text, modified_at = {_NOW}
  FROM stands s WHERE e.id = s.id
  RETURNING e.id, e.version, e.doc, e.modified_at)
{_LOG.format(row=row)}
FROM changed JOIN stands USING (id)
RETURNING entity_id, version"""


def drop(*, rows: bool) -> str:
    """No row: it was not there."""
    return _exclusive(rows, f"state = 1, dropped_at = {_NOW}", "drop", "NULL", "NULL, NULL")


def rename(*, rows: bool) -> str:
    """No row: it was not there; SQLSTATE 23505: the name is taken."""
    return _exclusive(rows, "name = %(to)s::text, key = %(to)s::text", "rename", "%(path_to)s::text", "family, key")


_SHARED, _ALONE = "pg_advisory_xact_lock_shared", "pg_advisory_xact_lock"


def _advisory(*modes: str) -> str:
    return "SELECT " + ", ".join(f"{mode}(%(k{n})s::bigint)" for n, mode in enumerate(modes, 1))


ADVISORY = {
    "share": _advisory(_SHARED, _SHARED, _SHARED, _SHARED),
    "node": _advisory(_SHARED, _SHARED, _SHARED, _ALONE),
    "parent": _advisory(_SHARED, _SHARED, _ALONE),
}
"""Advisory locks on hashes of the path's prefixes, from the root down; until the end of the transaction."""
