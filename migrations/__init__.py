"""Create and upgrade the tables of a database with Alembic.

Revisions are frozen: they never import the declared tables. Each revision writes its format into ``info``, and the
oldest format whose programs can still work with it. All pending revisions are one transaction. On PostgreSQL, indexes
of tables that are in use are built before it (:mod:`metastore.migrations.indexes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from metastore.arguments import boolean, shown
from metastore.clock import SYSTEM
from metastore.errors import BackendRefused, BackendUnavailable, InvalidArgument, MigrationNeeded
from metastore.migrations.indexes import build_pending
from metastore.migrations.sessions import MIGRATOR, refuse_beside
from metastore.migrations.time_outs import TIMED_OUT, end_none_of_transactions
from metastore.retry.classify import Consequence, of_sqlite, of_sqlstate
from metastore.urls import Url, redacted

__all__ = ["Revision", "downgrade", "pending", "upgrade", "upgrade_sqlite"]

_LOCK = 7_305_440_021_194_033_271
"""The key of the lock that lets one process migrate a PostgreSQL database at a time."""
_PATIENCE: Final = 120.0
"""How long a migration tries to lock the tables while others write (seconds)."""
_LOCK_TIMEOUT: Final = "1s"
"""How long it waits for the locks in one try. New writers wait behind it meanwhile."""
_PAUSE: Final = 1.0
"""The longest pause before the next try, in which writers continue (seconds)."""
_IN_THE_WAY: Final = ("40P01", "55P03")
"""The SQLSTATEs of a deadlock with a writer, and of a table that a writer keeps locked."""
_TABLES: Final = ("guard", "entity", "owned", "relation", "operation")
"""The tables in the order in which writers take them."""


class Revision(NamedTuple):
    """A revision that a database does not have, and its effect."""

    name: str
    what: str


def upgrade(url: Url, revision: str = "head", *, force: bool = False) -> None:
    """Upgrade the database to ``revision``, unless it has it.

    Others may continue to write: it waits until it can lock all tables. Raises BackendRefused, BackendUnavailable;
    MigrationNeeded for a database of a newer program; InvalidArgument for an unknown revision. Without ``force``, it
    also raises BackendUnavailable while programs are connected that it would exclude.
    """
    boolean(force, "force")
    known = {"head", *[one.revision for one in _scripts().walk_revisions()]}
    if not isinstance(revision, str) or revision not in known:
        raise InvalidArgument(f"there is no revision {shown(revision)}; known are {', '.join(sorted(known))}")
    if revision == "head" and _is_done(url):  # so a role that may not migrate gets no error if there is nothing to do
        return
    _run_on(url, lambda config: command.upgrade(config, revision), prepare=revision, force=force)


def pending(url: Url) -> list[Revision]:
    """Return the revisions that the database does not have, oldest first. Raises as ``upgrade`` does."""
    with _told(redacted(url)):
        current = _revision_of(url)
        try:
            missing = list(_scripts().iterate_revisions("head", current or "base"))
        except ResolutionError as error:
            raise CommandError(str(error)) from None
    return [Revision(one.revision, (one.doc or "").split("\n")[0]) for one in reversed(missing)]


def _is_done(url: Url) -> bool:
    """Whether the database has the newest revision; False after an error, which the migration itself then reports."""
    with suppress(DBAPIError):
        return _revision_of(url) == _scripts().get_current_head()
    return False


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))


def _revision_of(url: Url) -> str | None:
    """Return the revision that the database has. It only reads: it makes no file, and waits for no lock.

    The role of a service may not read Alembic's table; the format in ``info`` is the number of the revision.
    """
    if url.drivername == "sqlite" and not Path(url.database or "").exists():
        return None
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            with suppress(DBAPIError):
                revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
                return revision
        with engine.connect() as connection:
            return str(connection.scalar(text("SELECT format FROM info"))).zfill(4)
    finally:
        engine.dispose()


def downgrade(url: Url, revision: str) -> None:
    """Downgrade the database to ``revision`` ("base": remove everything)."""
    _run_on(url, lambda config: command.downgrade(config, revision))


def upgrade_sqlite(connection: Any) -> None:
    """Upgrade the SQLite database of an open connection to the newest revision; the connection stays open."""
    engine = create_engine("sqlite://", module=_sqlite(), creator=lambda: connection, poolclass=StaticPool)
    _run(engine, lambda config: command.upgrade(config, "head"), "the SQLite database")


def _run_on(url: Url, what: Callable[[Config], None], prepare: str | None = None, *, force: bool = True) -> None:
    engine = _engine(url, writes=True)
    try:
        _run(engine, what, redacted(url), prepare, force=force)
    finally:
        engine.dispose()


def _engine(url: Url, *, writes: bool = False) -> Engine:
    if url.drivername != "sqlite":
        from metastore.backends.postgres.settings import options_of  # noqa: PLC0415  (not needed for SQLite)

        given = {"connect_timeout": 10, "application_name": MIGRATOR, **options_of(url)}
        options: dict[str, Any] = {**given, "client_encoding": "utf8"}
        engine = create_engine(_of_sqlalchemy(url), connect_args=options)
        end_none_of_transactions(engine)
        return engine
    from metastore.backends.sqlite.connect import make_private  # noqa: PLC0415  (not needed for PostgreSQL)

    if writes:
        make_private(url.database or "")
    engine = create_engine(_of_sqlalchemy(url), module=_sqlite())

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 30000")
        if writes:
            connection.execute("PRAGMA journal_mode = WAL")

    return engine


def _of_sqlalchemy(url: Url) -> URL:
    """Return SQLAlchemy's URL, without the options."""
    return URL.create(url.drivername, url.username, url.password, url.host, url.port, url.database)


def _sqlite() -> Any:
    """Return the SQLite library that stores use: two libraries in one process would release each other's file locks."""
    from metastore.backends.sqlite.connect import DRIVER  # noqa: PLC0415  (not needed for PostgreSQL)

    return DRIVER


def _run(
    engine: Engine, what: Callable[[Config], None], where: str, prepare: str | None = None, *, force: bool = True
) -> None:
    if engine.dialect.name == "sqlite":
        _begin_immediate(engine)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    with _told(where):
        if prepare is not None and engine.dialect.name == "postgresql":
            if not force:
                refuse_beside(engine, config, prepare, where)
            build_pending(engine, config, prepare)
        _in_a_quiet_moment(engine, config, what, where)


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Raise the errors of the driver or of Alembic as errors of this program."""
    try:
        yield
    except DBAPIError as error:
        state, code = getattr(error.orig, "sqlstate", None), getattr(error.orig, "sqlite_errorcode", None)
        if state in _IN_THE_WAY:
            raise BackendUnavailable(
                f"cannot migrate {where}: for {_PATIENCE:.0f} s other sessions kept its tables ({_reason(error)}); "
                "nothing was changed: end long transactions (pg_stat_activity shows them), then migrate again"
            ) from None
        if state in TIMED_OUT:
            raise BackendUnavailable(
                f"cannot migrate {where}: a time-out of the role, the database or the URL ended a statement "
                f"({_reason(error)}); nothing was changed: migrate with a longer one, such as "
                "PGOPTIONS='-c statement_timeout=0'"
            ) from None
        denied = Consequence.REFUSED in (of_sqlstate(state), of_sqlite(code))
        raise (BackendRefused if denied else BackendUnavailable)(
            f"cannot migrate {where}: {_reason(error)}; check the URL, the credentials, and that it can be written"
        ) from None
    except CommandError as error:
        raise MigrationNeeded(
            f"the database has a revision that this program does not know ({' '.join(str(error).split())}): "
            "a newer program made it; upgrade this one"
        ) from None


def _in_a_quiet_moment(engine: Engine, config: Config, what: Callable[[Config], None], where: str) -> None:
    """Run ``what`` in one transaction, and again if a writer held a lock, so that writers never wait for long."""
    ends = SYSTEM.monotonic() + _PATIENCE
    while True:
        try:
            with engine.begin() as connection:
                confirmed = _confirmed(connection)
                _one_at_a_time(connection, where)
                _take_tables(connection)
                config.attributes["connection"] = connection
                what(config)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _IN_THE_WAY or SYSTEM.monotonic() > ends:
                raise
            SYSTEM.sleep(SYSTEM.uniform(0.0, _PAUSE))
        else:
            break
    if not confirmed():
        raise BackendUnavailable(
            f"{where} is migrated, but its commit's wait for a replica was stopped: a fail-over would undo it; "
            "expected a replica that confirms commits; migrate again after a fail-over"
        )


def _take_tables(connection: Connection) -> None:
    """Lock all tables that writers use before the first change of one: otherwise a writer and this could deadlock."""
    if connection.dialect.name != "postgresql":
        return
    there = [name for name in _TABLES if connection.scalar(text("SELECT to_regclass(:name)"), {"name": name})]
    connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
    if there:
        connection.execute(text(f"LOCK TABLE {', '.join(there)} IN ACCESS EXCLUSIVE MODE"))


def _reason(error: DBAPIError) -> str:
    """Return the first line of the driver's message, which says what happened, without the hints below it."""
    lines = [line for line in str(error.orig).splitlines() if line.strip() and not line[0].isspace()]
    return lines[0].strip() if lines else "no reason given"


def _one_at_a_time(connection: Connection, where: str) -> None:
    if connection.dialect.name == "postgresql":
        from metastore.backends.postgres.settings import check_encoding  # noqa: PLC0415

        check_encoding(where, connection.scalar(text("SELECT current_setting('server_encoding')")) or "?")
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _confirmed(connection: Connection) -> Callable[[], bool]:
    """Return a function that tells, after the connection's commit, whether that commit is safe from a fail-over."""
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
