"""Build the indexes of pending revisions on PostgreSQL before the migration, while writers go on.

A revision has in ``INDEXES`` the statement that builds each index, CONCURRENTLY, which must run outside of a
transaction; and in ``BEFORE`` the statements for its prerequisites, such as columns. The revision itself creates an
index only if it is missing: on new databases, to which no client writes yet.

An index whose building was interrupted exists, but is invalid: it is dropped and built again. One process builds at a
time, under a lock of its session, so that the lock is held for as long as the server builds. The others ask for the
lock again and again: a statement that waited for it would hold a snapshot, and the build waits for the end of all old
snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from sqlalchemy import Connection, Engine, text

from metastore.clock import SYSTEM
from metastore.migrations.time_outs import end_none_of_a_session

__all__ = ["build_pending"]

_LOCK = 7_305_440_021_194_033_272
_PAUSE = 0.2
"""How long a process waits before it asks for the lock again (seconds)."""

_CURRENT = "SELECT version_num FROM alembic_version"
_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"


def build_pending(engine: Engine, config: Config, revision: str) -> None:
    """Build the indexes of the revisions between the database's and ``revision``; a new database needs none.

    Behind a pooler, which keeps no session, it only removes invalid indexes: the migration builds the rest, and writers
    wait.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not (missing := _missing(connection, config, revision)):
            return
        raw: Any = connection.connection.dbapi_connection
        if connection.scalar(text("SELECT pg_backend_pid()")) != raw.info.backend_pid:
            for name in missing:
                connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
            return
        end_none_of_a_session(connection)
        while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK}):
            SYSTEM.sleep(_PAUSE)
        missing = _missing(connection, config, revision)  # another process may have built some of them
        for module in _revisions(connection, config, revision) if missing else ():
            for statement in getattr(module, "BEFORE", ()):
                connection.execute(text(statement))
        for name, statement in missing.items():
            connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
            connection.execute(text(statement))
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})


def _missing(connection: Connection, config: Config, revision: str) -> Mapping[str, str]:
    """Return the pending indexes that do not exist, or are invalid, and the statement that builds each."""
    indexes: dict[str, str] = {}
    for module in _revisions(connection, config, revision):
        indexes |= getattr(module, "INDEXES", {})
    missing = {
        name: sql for name, sql in indexes.items() if connection.scalar(text(_VALID), {"name": name}) is not True
    }
    # nothing is missing if another process has migrated meanwhile: a revision may have renamed the indexes
    return missing if not missing or _revisions(connection, config, revision) else {}


def _revisions(connection: Connection, config: Config, revision: str) -> list[Any]:
    """Return the modules of the pending revisions, oldest first; for a new database, return none."""
    if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
        return []
    current = connection.scalar(text(_CURRENT))
    if current is None:
        return []
    try:
        pending = list(ScriptDirectory.from_config(config).iterate_revisions(revision, current))
    except ResolutionError:  # a newer program's revision: the migration itself reports it
        return []
    return [one.module for one in reversed(pending)]
