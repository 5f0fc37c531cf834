"""What error codes mean, with the exceptions that real databases raise."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.read_errors import raise_read_error
from metastore.backends.sqlite.connect import DRIVER
from metastore.backends.sqlite.connect import raise_read_error as raise_sqlite_error
from metastore.retry.classify import Consequence, of_sqlite, of_sqlstate
from tests.servers.postgres import Databases

STATES = {
    None: Consequence.UNKNOWN,
    "08000": Consequence.UNKNOWN,
    "08003": Consequence.UNKNOWN,
    "08006": Consequence.UNKNOWN,
    "08P01": Consequence.UNKNOWN,
    "22003": Consequence.REJECTED,
    "22012": Consequence.CHECK,
    "22P02": Consequence.REJECTED,
    "22P05": Consequence.REJECTED,
    "23502": Consequence.REJECTED,
    "23505": Consequence.UNIQUE,
    "23514": Consequence.REJECTED,
    "25006": Consequence.REFUSED,
    "25P03": Consequence.UNKNOWN,
    "25P04": Consequence.RETRY,
    "28000": Consequence.UNAVAILABLE,
    "28P01": Consequence.UNAVAILABLE,
    "3D000": Consequence.UNAVAILABLE,
    "3F000": Consequence.SCHEMA,
    "40001": Consequence.RETRY,
    "40003": Consequence.UNKNOWN,
    "40P01": Consequence.RETRY,
    "42501": Consequence.REFUSED,
    "42601": Consequence.OTHER,
    "42703": Consequence.SCHEMA,
    "42P01": Consequence.SCHEMA,
    "53100": Consequence.UNAVAILABLE,
    "53300": Consequence.UNAVAILABLE,
    "54000": Consequence.REJECTED,
    "55006": Consequence.UNAVAILABLE,
    "55P03": Consequence.RETRY,
    "57000": Consequence.UNAVAILABLE,
    "57014": Consequence.RETRY,
    "57P01": Consequence.UNKNOWN,
    "57P02": Consequence.UNKNOWN,
    "57P03": Consequence.UNAVAILABLE,
    "58030": Consequence.UNAVAILABLE,
    "XX000": Consequence.OTHER,
    "": Consequence.OTHER,
    "99999": Consequence.OTHER,
}


@pytest.mark.parametrize("state", STATES, ids=str)
def test_sqlstates(state: str | None) -> None:
    assert of_sqlstate(state) is STATES[state]


def test_each_sqlstate_becomes_an_error_of_ours() -> None:
    """No error of the driver leaves a call: a damaged page, for example, is told with its SQLSTATE."""
    kinds = [one for one in vars(psycopg.errors).values() if isinstance(one, type) and issubclass(one, psycopg.Error)]
    states = {one.sqlstate: one for one in kinds if one.sqlstate}
    assert len(states) > 200
    for state, kind in states.items():
        if of_sqlstate(state) in (Consequence.CHECK, Consequence.UNIQUE):
            continue  # a statement of ours raises it on purpose, and its caller knows what it means
        with pytest.raises(ms.MetastoreError) as caught:
            raise_read_error(kind("the words of the server"))
        assert "the words of the server" in str(caught.value), state
    with pytest.raises(ms.BackendRefused, match=r"\(SQLSTATE XX001\)"):
        raise_read_error(psycopg.errors.DataCorrupted("invalid page"))


@pytest.mark.parametrize(
    ("kind", "meaning"),
    [("DataError", ms.InvalidArgument), ("OperationalError", ms.BackendRefused), ("DatabaseError", ms.BackendRefused)],
)
def test_an_error_of_sqlite_without_a_code_becomes_one_of_ours(kind: str, meaning: type[ms.MetastoreError]) -> None:
    """As on PostgreSQL. What the driver refuses before it asks SQLite stays raw: it is a defect of ours."""
    with pytest.raises(meaning, match="the words of the driver"):
        raise_sqlite_error(getattr(DRIVER, kind)("the words of the driver"))
    with pytest.raises(DRIVER.ProgrammingError):
        raise_sqlite_error(DRIVER.ProgrammingError("no such parameter"))


CODES = {
    None: Consequence.OTHER,
    sqlite3.SQLITE_BUSY: Consequence.RETRY,
    sqlite3.SQLITE_BUSY_SNAPSHOT: Consequence.RETRY,
    sqlite3.SQLITE_BUSY_RECOVERY: Consequence.RETRY,
    sqlite3.SQLITE_LOCKED: Consequence.RETRY,
    sqlite3.SQLITE_LOCKED_SHAREDCACHE: Consequence.RETRY,
    sqlite3.SQLITE_READONLY: Consequence.REFUSED,
    sqlite3.SQLITE_READONLY_DBMOVED: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_FULL: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_IOERR: Consequence.UNKNOWN,
    sqlite3.SQLITE_IOERR_FSYNC: Consequence.UNKNOWN,
    sqlite3.SQLITE_CANTOPEN: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_CORRUPT: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_NOTADB: Consequence.REFUSED,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: Consequence.UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: Consequence.UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_NOTNULL: Consequence.REJECTED,
    sqlite3.SQLITE_CONSTRAINT_TRIGGER: Consequence.REJECTED,
    sqlite3.SQLITE_TOOBIG: Consequence.REJECTED,
    sqlite3.SQLITE_ERROR: Consequence.SCHEMA,
    sqlite3.SQLITE_MISUSE: Consequence.OTHER,
}


@pytest.mark.parametrize("code", CODES, ids=str)
def test_sqlite_codes(code: int | None) -> None:
    assert of_sqlite(code) is CODES[code]


# --- PostgreSQL, the real thing

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def pair(postgres_databases: Databases) -> Iterator[tuple[Connection, Connection]]:
    """Give two connections to a database with a small table."""
    url = postgres_databases.create_database()
    dsn = url.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(dsn, autocommit=True) as one, psycopg.connect(dsn, autocommit=True) as other:
        one.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer NOT NULL CHECK (n < 100))")
        one.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        yield one, other
    postgres_databases.drop_database(url)


def verdict(connection: Connection, *statements: str) -> tuple[str | None, Consequence]:
    """Run the statements; return the SQLSTATE of the error that the last one raises, and what is made of it."""
    *before, last = statements
    for statement in before:
        connection.execute(statement.encode())
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(last.encode())
    return caught.value.sqlstate, of_sqlstate(caught.value.sqlstate)


def test_a_deadlock(pair: tuple[Connection, Connection]) -> None:
    """40P01: one of the two is not applied, the other one is."""
    states: list[str | None] = []
    both_hold_one = threading.Barrier(2)

    def work(connection: Connection, first: int, second: int) -> None:
        connection.execute("SET deadlock_timeout = '50ms'")
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", (first,))
        both_hold_one.wait(10)
        try:
            connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", (second,))
            connection.execute("COMMIT")
        except psycopg.Error as error:
            states.append(error.sqlstate)
            connection.execute("ROLLBACK")

    other = threading.Thread(target=work, args=(pair[1], 2, 1))
    other.start()
    work(pair[0], 1, 2)
    other.join()
    assert states == ["40P01"]
    assert of_sqlstate(states[0]) is Consequence.RETRY


def test_a_serialization_failure(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    one.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    one.execute("SELECT * FROM t")
    other.execute("UPDATE t SET n = 9 WHERE id = 1")
    assert verdict(one, "UPDATE t SET n = 8 WHERE id = 1") == ("40001", Consequence.RETRY)


def test_a_lock_that_is_not_to_be_had(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    other.execute("BEGIN")
    other.execute("UPDATE t SET n = 9 WHERE id = 1")
    assert verdict(one, "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT") == ("55P03", Consequence.RETRY)
    assert verdict(one, "SET lock_timeout = '10ms'", "UPDATE t SET n = 8 WHERE id = 1") == ("55P03", Consequence.RETRY)


SINGLE = {
    "unique": (["INSERT INTO t VALUES (1, 5)"], "23505", Consequence.UNIQUE),
    "division": (["SELECT 1 / (CASE WHEN id > 0 THEN 0 ELSE 1 END) FROM t"], "22012", Consequence.CHECK),
    "no table": (["SELECT * FROM missing"], "42P01", Consequence.SCHEMA),
    "no column": (["SELECT missing FROM t"], "42703", Consequence.SCHEMA),
    "read only": (["SET default_transaction_read_only = on", "DELETE FROM t"], "25006", Consequence.REFUSED),
    "timeout": (["SET statement_timeout = '20ms'", "SELECT pg_sleep(5)"], "57014", Consequence.RETRY),
    "check": (["INSERT INTO t VALUES (3, 1000)"], "23514", Consequence.REJECTED),
    "null": (["INSERT INTO t VALUES (3, NULL)"], "23502", Consequence.REJECTED),
    "range": (["INSERT INTO t VALUES (3, 99999999999)"], "22003", Consequence.REJECTED),
    "text": (["SELECT 'x'::integer"], "22P02", Consequence.REJECTED),
    "syntax": (["SELEC 1"], "42601", Consequence.OTHER),
}


@pytest.mark.parametrize(("statements", "state", "expected"), SINGLE.values(), ids=SINGLE)
def test_real_errors(
    pair: tuple[Connection, Connection], statements: list[str], state: str, expected: Consequence
) -> None:
    assert verdict(pair[0], *statements) == (state, expected)


def test_a_cancelled_statement(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    over = threading.Event()

    def cancel() -> None:
        while not over.wait(0.1):  # a cancellation that comes before the statement does nothing
            one.cancel_safe()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        assert verdict(one, "SELECT pg_sleep(10)") == ("57014", Consequence.RETRY)
    finally:
        over.set()
        thread.join()
    assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_terminated_session(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    other.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
    state, found = verdict(one, "UPDATE t SET n = 5 WHERE id = 1")
    assert state in (None, "57P01")
    assert found is Consequence.UNKNOWN
    assert verdict(one, "SELECT 1") == (None, Consequence.UNKNOWN)


# --- SQLite, the real thing


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give a file with a small table."""
    path = tmp_path / "a.db"
    connection = DRIVER.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL UNIQUE)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(2000)])
    connection.close()
    return path


def lite(path: Path, *statements: str) -> Consequence:
    """Run the statements on a connection of their own; return what is made of the error of the last one."""
    connection = DRIVER.connect(path, isolation_level=None, timeout=0.0)
    try:
        *before, last = statements
        for statement in before:
            connection.execute(statement).fetchall()
        with pytest.raises(DRIVER.Error) as caught:
            connection.execute(last).fetchall()
        return of_sqlite(caught.value.sqlite_errorcode)
    finally:
        connection.close()


def test_sqlite_busy(file: Path) -> None:
    holder = DRIVER.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert lite(file, "BEGIN IMMEDIATE") is Consequence.RETRY
    holder.close()


def test_sqlite_busy_snapshot(file: Path) -> None:
    """A transaction that has read cannot write once somebody else has."""
    reader = DRIVER.connect(file, isolation_level=None, timeout=0.0)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM t").fetchall()
    writer = DRIVER.connect(file, isolation_level=None)
    writer.execute("UPDATE t SET n = -1 WHERE id = 1")
    with pytest.raises(DRIVER.Error) as caught:
        reader.execute("UPDATE t SET n = -2 WHERE id = 2")
    assert caught.value.sqlite_errorcode in (sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_BUSY)
    assert of_sqlite(caught.value.sqlite_errorcode) is Consequence.RETRY
    reader.close()
    writer.close()


def test_sqlite_corrupt(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert lite(file, "SELECT count(*), sum(n) FROM t") is Consequence.UNAVAILABLE


def test_sqlite_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is text\n" * 1000)
    assert lite(tmp_path / "text", "SELECT * FROM t") is Consequence.REFUSED


UNIQUE = Consequence.UNIQUE if DRIVER is sqlite3 else Consequence.REJECTED
"""pysqlite3 0.6 gives primary codes only: it cannot tell a unique index from another constraint."""
LITE = {
    "read only": (["PRAGMA query_only = ON", "DELETE FROM t"], Consequence.REFUSED),
    "full": (
        ["PRAGMA max_page_count = 1", "CREATE TABLE u AS SELECT a.n FROM t a, t b LIMIT 90000"],
        Consequence.UNAVAILABLE,
    ),
    "primary key": (["INSERT INTO t VALUES (1, -1)"], UNIQUE),
    "unique": (["INSERT INTO t VALUES (-1, 1)"], UNIQUE),
    "null": (["INSERT INTO t VALUES (-1, NULL)"], Consequence.REJECTED),
    "too big": (["SELECT zeroblob(1 << 31)"], Consequence.REJECTED),
    "no table": (["SELECT * FROM missing"], Consequence.SCHEMA),
    "no column": (["SELECT missing FROM t"], Consequence.SCHEMA),
}


@pytest.mark.parametrize(("statements", "expected"), LITE.values(), ids=LITE)
def test_real_errors_of_sqlite(file: Path, statements: list[str], expected: Consequence) -> None:
    assert lite(file, *statements) is expected


def test_sqlite_cannot_open(tmp_path: Path) -> None:
    with pytest.raises(DRIVER.Error) as caught:
        DRIVER.connect(tmp_path / "missing" / "a.db")
    assert of_sqlite(caught.value.sqlite_errorcode) is Consequence.UNAVAILABLE
