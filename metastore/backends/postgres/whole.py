"""Find the objects that a PostgreSQL database lacks because a restore stopped midway. Its rows do not show them.

``pg_restore`` creates tables first, then rows and sequences, and at the end indexes and triggers. This changes nothing.
"""

from __future__ import annotations

from typing import Final

import psycopg
from sqlalchemy import UniqueConstraint

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.read_errors import raise_read_error
from metastore.backends.sql.tables import metadata
from metastore.port.format import SCHEMA_FORMAT
from metastore.urls import Url

TRIGGERS: Final = ("operation_announced", "guard_scope_bump", "operation_writer", "info_writer", "info_writer_cleared")
_TABLES = (
    "SELECT 'the table ' || name || ' is missing' FROM unnest(%(names)s::text[]) name WHERE to_regclass(name) IS NULL"
)
_OTHERS = """SELECT 'the index ' || name || ' is missing or not valid' FROM unnest(%(indexes)s::text[]) name
WHERE NOT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(name) AND indisvalid)
UNION ALL SELECT 'the trigger ' || name || ' is missing or off' FROM unnest(%(triggers)s::text[]) name
WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = name AND tgenabled IN ('O', 'A'))
UNION ALL SELECT 'the table info has no row' WHERE NOT EXISTS (SELECT FROM info)
UNION ALL SELECT 'the table alembic_version has no row' WHERE NOT EXISTS (SELECT FROM alembic_version)
UNION ALL SELECT 'the sequence change_seq is behind the newest change: its numbers would be given twice'
WHERE (SELECT max(seq) FROM operation) > (SELECT last_value FROM change_seq)
UNION ALL SELECT 'the sequence entity_id_seq is behind the newest entity: its numbers would be given twice'
WHERE (SELECT max(id) FROM (SELECT id FROM guard UNION ALL SELECT id FROM owned UNION ALL SELECT id FROM relation) one)
  > (SELECT last_value FROM entity_id_seq)"""


def lacking(url: Url, deadline: float) -> list[str]:
    """Return the missing objects, in words. ``deadline`` in seconds. Raises BackendUnavailable, BackendRefused."""
    tables = {**metadata.tables}
    indexes = [str(index.name) for table in tables.values() for index in table.indexes]
    keys = [f"{name}_pkey" for name, table in tables.items() if table.primary_key.columns]
    constraints = [one for table in tables.values() for one in table.constraints]
    keys += [str(one.name) for one in constraints if isinstance(one, UniqueConstraint)]
    pool = Pool(url, deadline)
    try:
        with pool.connection() as connection, connection.cursor() as cursor:
            if written := _format(cursor):
                return [f"it has format {written}; this program needs {SCHEMA_FORMAT}: migrate it, then ask again"]
            gone = cursor.execute(_TABLES.encode(), {"names": [*tables, "alembic_version"]}).fetchall()
            if not gone:
                names = {"indexes": [*keys, *indexes], "triggers": list(TRIGGERS)}
                gone = cursor.execute(_OTHERS.encode(), names).fetchall()
            return [str(text) for (text,) in gone]
    except psycopg.Error as error:
        raise_read_error(error)
    finally:
        pool.close()


def _format(cursor: psycopg.Cursor[tuple[object, ...]]) -> int | None:
    """Return the format of the database, if it is an older one than this program's."""
    if cursor.execute("SELECT to_regclass('info')").fetchone() == (None,):
        return None
    cursor.execute("SELECT format FROM info WHERE format < %s", [SCHEMA_FORMAT])
    return next((int(str(written)) for (written,) in cursor.fetchall()), None)
