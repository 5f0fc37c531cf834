"""Create and upgrade the tables of a database with Alembic.

Revisions are frozen: they never import the declared tables. Each writes into ``info`` the format that it leaves
behind, and the oldest format whose programs can still work with it. All pending revisions are one transaction. On
PostgreSQL, indexes of tables that are in use are built before it (:mod:`metastore.migrations.indexes`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from metastore.errors import BackendRefused, BackendUnavailable, MigrationNeeded
from metastore.migrations.indexes import build_pending
from metastore.retry.classify import Consequence, of_sqlite, of_sqlstate
from metastore.urls import redacted

__all__ = ["downgrade", "upgrade", "upgrade_sqlite"]

_LOCK = 7_305_440_021_194_033_271
"""The key of the lock that lets one process migrate a PostgreSQL database at a time."""


def upgrade(url: URL, revision: str = "head") -> None:
    """Upgrade the database to ``revision``, unless it has it. Raises BackendUnavailable, MigrationNeeded."""
    _run_on(url, lambda config: command.upgrade(config, revision), prepare=revision)


def downgrade(url: URL, revision: str) -> None:
    """Downgrade the database to ``revision`` ("base": remove everything)."""
    _run_on(url, lambda config: command.downgrade(config, revision))


def upgrade_sqlite(connection: Any) -> None:
    """Upgrade the SQLite database of an open connection to the newest revision; the connection stays open."""
    engine = create_engine("sqlite://", module=_sqlite(), creator=lambda: connection, poolclass=StaticPool)
    _run(engine, lambda config: command.upgrade(config, "head"), "the SQLite database")


def _run_on(url: URL, what: Callable[[Config], None], prepare: str | None = None) -> None:
    engine = _engine(url)
    try:
        _run(engine, what, redacted(url), prepare)
    finally:
        engine.dispose()


def _engine(url: URL) -> Engine:
    if url.drivername != "sqlite":
        from metastore.backends.postgres.settings import options_of  # noqa: PLC0415  (not needed for SQLite)

        options: dict[str, Any] = {"connect_timeout": 10, **options_of(url), "client_encoding": "utf8"}
        return create_engine(url.set(query={}), connect_args=options)
    engine = create_engine(url, module=_sqlite())

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 30000")
        connection.execute("PRAGMA journal_mode = WAL")

    return engine


def _sqlite() -> Any:
    """Return the SQLite library that stores use: two libraries in one process would release each other's file locks."""
    from metastore.backends.sqlite.connect import DRIVER  # noqa: PLC0415  (not needed for PostgreSQL)

    return DRIVER


def _run(engine: Engine, what: Callable[[Config], None], where: str, prepare: str | None = None) -> None:
    if engine.dialect.name == "sqlite":
        _begin_immediate(engine)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    try:
        if prepare is not None and engine.dialect.name == "postgresql":
            build_pending(engine, config, prepare)
        with engine.begin() as connection:
            confirmed = _confirmed(connection)
            _one_at_a_time(connection, where)
            config.attributes["connection"] = connection
            what(config)
        if not confirmed():
            raise BackendUnavailable(
                f"{where} is migrated, but its commit's wait for a replica was stopped: a fail-over would undo it; "
                "expected a replica that confirms commits; migrate again after a fail-over"
            )
    except DBAPIError as error:
        state, code = getattr(error.orig, "sqlstate", None), getattr(error.orig, "sqlite_errorcode", None)
        denied = Consequence.REFUSED in (of_sqlstate(state), of_sqlite(code))
        raise (BackendRefused if denied else BackendUnavailable)(
            f"cannot migrate {where}: {_reason(error)}; check the URL, the credentials, and that it can be written"
        ) from None
    except CommandError as error:
        raise MigrationNeeded(
            f"the database has a revision that this program does not know ({' '.join(str(error).split())}): "
            "a newer program made it; upgrade this one"
        ) from None


def _reason(error: DBAPIError) -> str:
    """Return the driver's first line, which says what happened, without the hints below it."""
    lines = [line for line in str(error.orig).splitlines() if line.strip() and not line[0].isspace()]
    return lines[0].strip() if lines else "no reason given"


def _one_at_a_time(connection: Connection, where: str) -> None:
    if connection.dialect.name == "postgresql":
        from metastore.backends.postgres.settings import check_encoding  # noqa: PLC0415

        check_encoding(where, connection.scalar(text("SELECT current_setting('server_encoding')")) or "?")
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _confirmed(connection: Connection) -> Callable[[], bool]:
    """Return a function that says, once the connection has committed, whether that commit is safe from a fail-over."""
    if connection.dialect.name != "postgresql":
        return lambda: True
    from metastore.backends.postgres.doubt import Doubt  # noqa: PLC0415  (not needed for SQLite)

    raw: Any = connection.connection.driver_connection
    doubt = Doubt(raw.pgconn)
    raw.add_notice_handler(doubt)
    return lambda: not doubt.unconfirmed


def _begin_immediate(engine: Engine) -> None:
    """Begin SQLite's transactions explicitly, so that they include DDL, and only one process migrates."""

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
