"""Connect to the database at a URL, and create or check its schema."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.arguments import items, positive_integer, positive_seconds
from metastore.backends.sql.limits import Limits
from metastore.clock import SYSTEM
from metastore.errors import BackendUnavailable, InvalidArgument, MetastoreError, MigrationNeeded
from metastore.names import clean_text
from metastore.port.backend import Backend, Embedded
from metastore.port.format import RESTORING, SCHEMA_FORMAT
from metastore.port.replica import ReplicaBackend
from metastore.urls import Url, parse_url, redacted

__all__ = ["connect", "migrate", "pending_revisions", "replicas_of"]

_ANSWERS = 5.0
"""How long a replica may take to answer (seconds). After that, the primary is asked."""


def connect(
    url: Url, deadline: float, *, pool_size: int = 10, max_wait: float | None = None, restoring: bool = False
) -> Backend:
    """Return the backend for ``url``, after a check of its schema. An embedded database is migrated first.

    ``deadline`` (seconds) applies to calls that do not set one; ``pool_size`` and ``max_wait`` (seconds) are as in
    :func:`metastore.open`. With ``restoring``, an import may be unfinished. Raises MigrationNeeded, BackendUnavailable,
    InvalidArgument.
    """
    pool_size = positive_integer(pool_size, "pool_size")
    limits = Limits(pool_size, None if max_wait is None else positive_seconds(max_wait, "max_wait"))
    backend = _backend(url, deadline, limits)
    try:
        _check_format(url, backend, restoring)
        if not restoring:
            backend.identify()
    # raise the error without its cause, because the frames of the pool and the driver would hide the message
    except MetastoreError as error:
        backend.close()
        raise error.with_traceback(None) from None
    except BaseException:
        backend.close()
        raise
    return backend


def replicas_of(
    url: Url, read_from: Iterable[str], deadline: float, *, pool_size: int, max_wait: float | None
) -> dict[str, ReplicaBackend]:
    """Return a backend for each replica of a database, by its URL without secrets. They connect at their first use.

    Raises InvalidArgument.
    """
    urls = [parse_url(clean_text(one, "a URL of read_from")) for one in items(read_from, "read_from")]
    if not urls:
        return {}
    if any(not one.is_postgres for one in (url, *urls)):
        raise InvalidArgument("read_from= is for PostgreSQL: SQLite has no replicas; open it without read_from=")
    from metastore.backends.postgres.backend import PostgresBackend  # noqa: PLC0415
    from metastore.backends.postgres.settings import leads_to_several  # noqa: PLC0415

    for one in urls:
        if leads_to_several(one):
            raise InvalidArgument(f"read_from has {redacted(one)}, which names several servers; give each its own URL")
    limits = Limits(pool_size, max_wait)
    return {redacted(one): PostgresBackend(one, min(deadline, _ANSWERS), limits, replica=True) for one in urls}


def _backend(url: Url, deadline: float, limits: Limits) -> Backend:
    if url.drivername == "memory":
        from metastore.backends.memory.backend import MemoryBackend  # noqa: PLC0415  (a process imports only the driver that it uses)

        return MemoryBackend(SYSTEM)
    if url.drivername == "sqlite":
        from metastore.backends.sqlite.backend import SqliteBackend  # noqa: PLC0415

        return SqliteBackend(url.database, deadline, SYSTEM, limits)
    from metastore.backends.postgres.backend import PostgresBackend  # noqa: PLC0415

    return PostgresBackend(url, deadline, limits)


def _check_format(url: Url, backend: Backend, restoring: bool) -> None:
    has = backend.format()
    if isinstance(backend, Embedded) and (has is None or has[0] < SCHEMA_FORMAT):
        backend.migrate()
        has = backend.format()
    if has is None:
        error = MigrationNeeded(f"{redacted(url)} has no schema yet; run: metastore migrate")
        error.has_schema = False
        raise error
    newest, compatible_from = has
    if newest < SCHEMA_FORMAT:
        message = f"{redacted(url)} has format {newest}, this program needs {SCHEMA_FORMAT}; run: metastore migrate"
        raise MigrationNeeded(message)
    if compatible_from == RESTORING and not restoring:
        raise BackendUnavailable(
            f"an import into {redacted(url)} was not finished; import the same file again to continue it, or drop "
            "the database"
        )
    if compatible_from > SCHEMA_FORMAT and not restoring:
        raise MigrationNeeded(
            f"{redacted(url)} has format {newest}, which programs older than format {compatible_from} cannot use; "
            f"this one has {SCHEMA_FORMAT}: upgrade it"
        )


def migrate(url: str | None = None, *, to: str = "head", force: bool = False) -> None:
    """Create or upgrade the schema. Any number of processes may call it at once: one does the work, the others wait.

    ``to``: the revision at which it ends. A migration after which older programs cannot write raises BackendUnavailable
    while programs are connected, and names them; with ``force``, it runs, and stops their writes. Raises
    BackendUnavailable, InvalidArgument.
    """
    from metastore.migrations import upgrade  # noqa: PLC0415  (Alembic is slow to import)

    parsed = parse_url(url)
    if parsed.drivername != "memory":
        upgrade(parsed, to, force=force)


def pending_revisions(url: str | None = None) -> list[tuple[str, str]]:
    """Return the revisions that the database lacks, oldest first, each with a description. This changes nothing.

    Raises BackendUnavailable, MigrationNeeded, InvalidArgument.
    """
    from metastore.migrations import pending  # noqa: PLC0415

    parsed = parse_url(url)
    return [] if parsed.drivername == "memory" else [(one.name, one.what) for one in pending(parsed)]
