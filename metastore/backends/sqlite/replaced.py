"""The values that a restored database keeps from the replaced state: the highest lease tokens, and the highest id.

A token or an id must not be given twice, even if a restore has undone the first holder.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from metastore.backends.sqlite.connect import DRIVER
from metastore.backends.sqlite.leases import SqliteLeases
from metastore.clock import SYSTEM
from metastore.names import format_path
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.leases import Mirror

_HOLDER: Final = "restore"
"""The holder in the audit of a token that was carried over. Nobody holds the lease then."""


class Replaced(NamedTuple):
    """The highest id that a database has given, and name, token and mirrored holder of each of its leases."""

    last_id: int
    leases: list[tuple[str, int, str | None]]


NOTHING: Final = Replaced(0, [])
# Check the types, because the database may be damaged.
_LAST_ID: Final = "SELECT last_id FROM info WHERE typeof(last_id) = 'integer'"
_LEASES: Final = """SELECT name, token, CASE WHEN owner IS NULL THEN incarnation END FROM lease
  WHERE typeof(name) = 'text' AND typeof(token) = 'integer' ORDER BY name"""


def replaced(connection: Any) -> Replaced:
    """Return the values to keep from a database; if it is damaged, those that can be read."""
    ids = [last_id for (last_id,) in _read(connection, _LAST_ID)]
    return Replaced(max(ids, default=0), _read(connection, _LEASES))


def _read(connection: Any, text: str) -> list[Any]:
    """Return the rows before the first one that cannot be read."""
    rows = list[Any]()
    with suppress(DRIVER.Error, UnicodeDecodeError):  # the file may be older than leases, or no database
        rows.extend(connection.execute(text))
    return rows


def keep(connection: Any, kept: Replaced) -> None:
    """Continue the ids and tokens of a replaced database. A backup in an older format is upgraded first."""
    if kept == NOTHING:
        return
    ((format_,),) = connection.execute("SELECT format FROM info").fetchall()
    if kept.leases and format_ < SCHEMA_FORMAT:
        from metastore.migrations import upgrade_sqlite  # noqa: PLC0415  (Alembic is slow to import)

        upgrade_sqlite(connection)
    now = SYSTEM.micros()
    leases = SqliteLeases(lambda change: change(connection, now), connection.execute, SYSTEM)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE info SET last_id = max(last_id, ?)", (kept.last_id,))
    for name, token, incarnation in kept.leases:
        path = format_path((name,))
        leases.mirror(Mirror(SYSTEM.operation_id(), None, name, path, token, _HOLDER, incarnation or ""))
    connection.execute("COMMIT")
