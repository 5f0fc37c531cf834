"""Connections to SQLite: this module opens and pools them, and translates their errors.

They use WAL, ``synchronous=FULL``, a busy time-out, and only transactions that this program begins. A connection is
never used after a fork, because that loses commits.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from metastore.backends.sql.limits import Limits
from metastore.backends.sql.pool import Loan, WaitingPool
from metastore.backends.sqlite.forks import FORKS
from metastore.backends.sqlite.text import is_no_text
from metastore.cached import cached_property
from metastore.clock import SYSTEM, process_id
from metastore.deadlines import cleans_up, remaining, stopping
from metastore.errors import (
    BackendRefused,
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    MigrationNeeded,
    StoreClosed,
    UnreadableRow,
)
from metastore.port.stats import PoolUse
from metastore.retry.classify import Consequence, of_sqlite

_log = logging.getLogger("metastore")
_FIXED = (3, 51, 3)
_OLDEST = (3, 40, 0)
_BUSY_WAIT = 0.004
"""The longest pause between attempts to begin to write, while another process writes (seconds)."""
_TOO_OLD = "a program older than format"
"""The beginning of the message of the triggers that refuse too old programs."""
_LONGEST = 1_000_000.0
"""The longest time-out (seconds): SQLite counts it in milliseconds, in 32 bits."""


def _newest_driver() -> Any:
    """Return the module with the newest SQLite: pysqlite3 if it is installed, otherwise Python's own."""
    try:
        import pysqlite3.dbapi2 as other  # noqa: PLC0415  (an extra)
    except ImportError:
        return sqlite3
    return other if other.sqlite_version_info > sqlite3.sqlite_version_info else sqlite3


DRIVER = _newest_driver()


class _Use(Loan[Any]):
    """A loan of a connection. Meanwhile no child is forked, and errors name the file."""

    __slots__ = ("_database",)

    def __init__(self, pool: WaitingPool, database: str) -> None:
        super().__init__(pool)
        self._database = database

    def __enter__(self) -> Any:
        FORKS.enter(self)
        try:
            return super().__enter__()
        except BaseException:
            FORKS.leave(self)
            raise

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().end(kind, error, trace)
            if isinstance(error, DRIVER.Error):
                error.add_note(self._database)
        finally:
            FORKS.leave(self)


class Pool:
    """A pool of connections to one file; a forked child does not share it with its parent."""

    def __init__(self, database: str | None, timeout: float, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._in_memory = database in (None, "", ":memory:")
        if not self._in_memory:
            make_private(str(database))
        self._database = database or ":memory:"
        self._timeout = timeout
        self._closed = False
        self._of_parent: list[WaitingPool] = []
        self._pool = self._new_pool()
        self._file: tuple[int, int] | None = None
        self._immutable: tuple[int, ...] | None = None
        _POOLS.add(self)
        if DRIVER.sqlite_version_info < _OLDEST:
            raise BackendUnavailable(
                f"SQLite {DRIVER.sqlite_version} is too old; 3.40 is the oldest that works: pip install pysqlite3"
            )

    def _check_there(self) -> None:
        """Raise BackendUnavailable if the path leads to another file now: writes would go to a deleted file."""
        if self._in_memory:
            return
        there = _identity(self._database)
        if self._file is None:
            self._file = there
        if self._file != there:
            raise BackendUnavailable(
                f"the SQLite database {self._database} was deleted or replaced while it was open; close the store, and "
                "open it again once the file is the right one"
            )

    @cached_property
    def file_number(self) -> int:
        """The file's number in its file system, which a copy does not share; in memory, a number of this pool."""
        try:
            return id(self) if self._in_memory else Path(self._database).stat().st_ino
        except OSError:  # the file is gone, but open connections continue without it
            return 0

    def _new_pool(self) -> WaitingPool:
        # a database in memory exists only in its one connection
        limits = self._limits._replace(size=1) if self._in_memory else self._limits
        return WaitingPool(self._connect, self._settle, limits, self._timeout)

    def use(self) -> PoolUse:
        """Return how many connections are in use."""
        return self._pool.use()

    def _connect(self) -> Any:
        if not self._in_memory:
            FORKS.check()
        try:
            try:
                opened = self._opened(self._database)
                self._check_there()
                return opened
            except DRIVER.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                denied = code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
                if self._in_memory or not denied or not os.access(self._database, os.R_OK):
                    raise
            return self._opened_immutable()
        # UnicodeDecodeError: SQLite's message quotes the text of a damaged schema
        except (DRIVER.Error, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise (BackendRefused if code == sqlite3.SQLITE_NOTADB else BackendUnavailable)(
                f"cannot open the SQLite database {self._database}: {error}; check the path and its permissions"
            ) from None

    def _opened(self, database: str, *, uri: bool = False) -> Any:
        waits = min(self._timeout, _LONGEST)
        connection = DRIVER.connect(database, timeout=waits, isolation_level=None, check_same_thread=False, uri=uri)
        try:
            if not self._in_memory:
                _use_wal(connection, waits)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened_immutable(self) -> Any:
        """Open a file in WAL mode where no log can be created: SQLite reads such a file if it need not look for a log.

        SQLite then does not notice writes by other processes, so :meth:`connection` checks that the file is unchanged.
        """
        state = _state(self._database)
        if state[-1]:
            raise BackendRefused(
                f"the SQLite database {self._database} has a write-ahead log; SQLite must write beside it to read it; "
                "let a user who may write there open it once, or give this user the right to write in its folder"
            )
        connection = self._opened(f"{Path(self._database).absolute().as_uri()}?immutable=1", uri=True)
        self._immutable = state
        return connection

    def connection(self) -> Loan[Any]:
        """Lend a connection for a ``with`` block; unfinished work is rolled back."""
        if self._closed and (self._in_memory or not cleans_up()):  # a database in memory ended with its connection
            raise StoreClosed
        if self._pool.pid != process_id():
            self._of_parent.append(self._pool)  # kept, because a child must not close its parent's connections
            self._pool = self._new_pool()
        if self._file is not None:
            self._check_there()
        if self._immutable is not None and self._immutable != _state(self._database):
            self._immutable = None
            self._pool.forget()
        return _Use(self._pool, self._database)

    def _settle(self, connection: Any, _: type[BaseException] | None) -> bool:
        """Roll back unfinished work of a loan; return whether the connection may be lent again."""
        try:
            if connection.in_transaction:
                connection.rollback()
        except DRIVER.Error:
            return False
        return not self._closed

    def begin(self, connection: Any) -> None:
        """Begin to write: wait for another writing process, until the call's deadline.

        SQLite's own busy handler waits longer each time, so the process that came first is served last: with 16
        processes, the unluckiest one waits 5 to 8 s. Short random waits are fair.
        """
        if not self._in_memory:
            _warn_once()
        ends, stop = SYSTEM.monotonic() + remaining(SYSTEM, self._timeout), stopping()
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return
                except DRIVER.Error as error:
                    consequence = of_sqlite(getattr(error, "sqlite_errorcode", None))
                    stopped = stop is not None and stop.asked
                    if consequence is not Consequence.RETRY or stopped or SYSTEM.monotonic() > ends:
                        raise
                SYSTEM.sleep(SYSTEM.uniform(0.0, _BUSY_WAIT))
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(min(self._timeout, _LONGEST) * 1000)}")

    def close(self) -> None:
        """Close the connections that are not lent; lend no more."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        if self._pool.pid == process_id():
            self._pool.close_idle()

    def before_fork(self) -> None:
        """Let a child inherit no connection, because it would treat its parent's locks as its own.

        When the parent then closes the file, SQLite would remove the log that the child continues to write.
        """
        if not self._in_memory:
            self._close_idle()


@cache
def _warn_once() -> None:
    """Warn once in a process of SQLite's WAL-reset bug, which affects only a process that writes."""
    if DRIVER.sqlite_version_info < _FIXED:
        _log.warning(
            "SQLite %s has a bug that can corrupt a WAL file which several processes write "
            "(fixed in 3.51.3); where they do: pip install pysqlite3",
            DRIVER.sqlite_version,
        )


def make_private(database: str) -> None:
    """Create a missing file that only its owner may read; SQLite gives the files beside it (-wal, -shm) its mode."""
    with suppress(OSError):  # the file exists, or SQLite will report the problem
        os.close(os.open(database, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


def _before_fork() -> None:
    FORKS.before()
    for pool in list(_POOLS):
        pool.before_fork()


os.register_at_fork(before=_before_fork, after_in_parent=FORKS.after_in_parent, after_in_child=FORKS.after_in_child)


def _use_wal(connection: Any, patience: float) -> None:
    """Switch to WAL, unless the file is in this mode; a read-only file stays as it is, and is readable.

    SQLite does not wait (busy_timeout) for a process that opens a new file at the same moment; this function does.
    """
    ends = SYSTEM.monotonic() + patience
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except DRIVER.Error as error:
            consequence = of_sqlite(getattr(error, "sqlite_errorcode", None))
            if consequence in (Consequence.REFUSED, Consequence.UNAVAILABLE):
                return
            if consequence is not Consequence.RETRY or SYSTEM.monotonic() > ends:
                raise
        SYSTEM.sleep(SYSTEM.uniform(0.0, 0.02))


def _identity(database: str) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if it does not exist, or if this process may not see it."""
    try:
        stat = os.stat(database)  # noqa: PTH116  (on each loan: Path takes longer)
        return stat.st_dev, stat.st_ino
    except OSError:
        return None


def _state(database: str) -> tuple[int, ...]:
    """Return values that change when a file changes; the last one is the size of the log beside it."""
    try:
        stat = os.stat(database)  # noqa: PTH116  (on each loan: Path takes longer)
        log = Path(f"{database}-wal")
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, log.stat().st_size if log.exists() else 0
    except OSError:
        return (0,)


def raise_read_error(error: Exception) -> NoReturn:
    """Raise the caller's error for a read, or for a write that was surely not applied."""
    meaning = _translated(error)
    if meaning is error:
        raise error
    raise meaning from (None if isinstance(meaning, BackendUnavailable) else error)


def _translated(error: Exception) -> MetastoreError | Exception:
    if is_no_text(error):
        return UnreadableRow("a row that the call writes or deletes", "one of its texts is not UTF-8")
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and of_sqlite(code) is Consequence.RETRY and remaining(SYSTEM, math.inf) <= 0:
        return DeadlineExceeded(
            "others wrote to the database until the deadline, and SQLite has one writer; nothing was applied; "
            "call again later"
        )
    if code is not None:
        return _meaning(error, code)
    if isinstance(error, DRIVER.DataError):
        return InvalidArgument(f"the database refuses a value: {error}")
    refused: tuple[type[Exception], ...] = (DRIVER.InterfaceError, DRIVER.ProgrammingError, DRIVER.NotSupportedError)
    if isinstance(error, refused):
        return error  # the driver refused a value: a bug in this program
    return BackendRefused(f"the database {_file(error)} failed: {error}; run: metastore verify")


def _file(error: Exception) -> str:
    return next(iter(getattr(error, "__notes__", ())), "")


def _meaning(error: Exception, code: int) -> MetastoreError:
    consequence = of_sqlite(code)
    file = _file(error)
    if consequence is Consequence.SCHEMA:
        return MigrationNeeded(f"the database has no fitting schema ({error}); run: metastore migrate")
    if consequence is Consequence.REFUSED:
        foreign = code & 0xFF == sqlite3.SQLITE_NOTADB
        again = "check the path" if foreign else "make the file and its folder writable"
        return BackendRefused(f"the database {file} refuses it: {error}; {again}")
    if consequence in (Consequence.UNAVAILABLE, Consequence.UNKNOWN, Consequence.RETRY):
        return BackendUnavailable(
            f"the database {file} cannot do this now: {error}; free it or check the file, then try again"
        )
    if consequence is Consequence.REJECTED:
        too_old = str(error).startswith(_TOO_OLD)
        return MigrationNeeded(str(error)) if too_old else InvalidArgument(f"the database refuses a value: {error}")
    return BackendRefused(f"the database {file} failed: {error} (SQLite's result {code}); run: metastore verify")
