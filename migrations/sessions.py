"""Name the programs that a migration would exclude, and that are connected to the database now."""

from __future__ import annotations

from typing import Final

from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from sqlalchemy import Connection, Engine, inspect, text

from metastore.errors import BackendUnavailable

__all__ = ["MIGRATOR", "refuse_beside"]

MIGRATOR: Final = "metastore migrate"
"""The name of a migration's own sessions."""
_SHOWN: Final = 10
_SESSIONS = """SELECT pid, usename, application_name, client_addr, state FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
  AND application_name LIKE 'metastore%' AND application_name <> 'metastore migrate' ORDER BY pid"""


def refuse_beside(engine: Engine, config: Config, revision: str, where: str) -> None:
    """Raise BackendUnavailable if programs are connected that could not write after a migration to ``revision``.

    Only PostgreSQL lists its sessions. A session is not found if its URL sets another name, or if a pooler keeps it.
    """
    with engine.connect() as connection:
        oldest = _oldest(connection, config, revision)
        if oldest is None:
            return
        found = [_shown(*row) for row in connection.execute(text(_SESSIONS))]
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        are = "session is" if len(found) == 1 else "sessions are"
        raise BackendUnavailable(
            f"{len(found)} {are} connected to {where}: {', '.join(found[:_SHOWN])}{more}; after this migration "
            f"programs older than format {oldest} cannot write: end them, then migrate again; or migrate with --force"
        )


def _oldest(connection: Connection, config: Config, revision: str) -> int | None:
    """Return the oldest format that may write after the migration; None: the migration excludes no format."""
    if not all(inspect(connection).has_table(name) for name in ("alembic_version", "info")):
        return None  # the database is new: no program uses it yet
    current = connection.scalar(text("SELECT version_num FROM alembic_version"))
    admitted: int = connection.scalar(text("SELECT compatible_from FROM info")) or 0
    try:
        pending = list(ScriptDirectory.from_config(config).iterate_revisions(revision, current or "base"))
    except ResolutionError:
        return None  # the migration itself reports the unknown revision
    oldest = max((getattr(one.module, "OLDEST", 0) for one in pending), default=0)
    return oldest if oldest > admitted else None


def _shown(pid: int, user: str, name: str, address: object, state: str | None) -> str:
    place = f" from {address}" if address else ""
    return f"{name} (pid {pid}, {user}{place}{f', {state}' if state else ''})"
