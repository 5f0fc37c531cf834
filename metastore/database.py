"""Connect to the database that a URL names, and make or check its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore.backends.sql.limits import Limits
from metastore.clock import SYSTEM
from metastore.errors import BackendUnavailable, MigrationNeeded
from metastore.port.backend import FORMAT, Backend, Embedded
from metastore.port.restore import RESTORING
from metastore.urls import parse_url, redacted

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

__all__ = ["check_format", "connect", "migrate"]


def connect(url: URL, deadline: float, limits: Limits | None = None) -> Backend:
    """Return the backend for ``url``, which imports only its own driver.

    ``deadline`` (seconds) holds for calls that set none themselves. Raises BackendUnavailable, InvalidArgument.
    """
    if url.drivername == "memory":
        from metastore.backends.memory.backend import MemoryBackend  # noqa: PLC0415  (only what is used is imported)

        return MemoryBackend(SYSTEM)
    if url.drivername == "sqlite":
        from metastore.backends.sqlite.backend import SqliteBackend  # noqa: PLC0415

        return SqliteBackend(url.database, deadline, SYSTEM, limits)
    from metastore.backends.postgres.backend import PostgresBackend  # noqa: PLC0415

    return PostgresBackend(url, deadline, limits)


def check_format(url: URL, backend: Backend, *, restoring: bool = False) -> None:
    """Check that this program can use the database; an embedded one is migrated first.

    With ``restoring``, an import may be unfinished. Raises MigrationNeeded, and BackendUnavailable for an import that
    was not finished.
    """
    has = backend.format()
    if isinstance(backend, Embedded) and (has is None or has[0] < FORMAT):
        backend.migrate()
        has = backend.format()
    if has is None:
        raise MigrationNeeded(f"{redacted(url)} has no schema yet; run: metastore migrate")
    newest, compatible_from = has
    if newest < FORMAT:
        message = f"{redacted(url)} has format {newest}, this program needs {FORMAT}; run: metastore migrate"
        raise MigrationNeeded(message)
    if compatible_from == RESTORING and not restoring:
        raise BackendUnavailable(
            f"an import into {redacted(url)} was not finished; import the same file again, which goes on there, or "
            "drop the database"
        )
    if compatible_from > FORMAT and not restoring:
        raise MigrationNeeded(
            f"{redacted(url)} has format {newest}, which programs older than format {compatible_from} cannot use; "
            f"this one has {FORMAT}: upgrade it"
        )


def migrate(url: str | None = None) -> None:
    """Make or upgrade the schema. Any number of processes may call it at once: one does it, the others find it done.

    Raises BackendUnavailable, InvalidArgument.
    """
    from metastore.migrations import upgrade  # noqa: PLC0415  (Alembic is slow to import)

    parsed = parse_url(url)
    if parsed.drivername != "memory":
        upgrade(parsed)
