"""What error codes mean, with the exceptions that real databases raise."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from metastore.backends.sqlite.connect import DRIVER
from metastore.retry.classify import Verdict, of_sqlite, of_sqlstate
from tests.servers.postgres import Databases

STATES = {
    None: Verdict.UNKNOWN,
    "08000": Verdict.UNKNOWN,
    "08003": Verdict.UNKNOWN,
    "08006": Verdict.UNKNOWN,
    "08P01": Verdict.UNKNOWN,
    "22003": Verdict.REJECTED,
    "22012": Verdict.CHECK,
    "22P02": Verdict.REJECTED,
    "22P05": Verdict.REJECTED,
    "23502": Verdict.REJECTED,
    "23505": Verdict.UNIQUE,
    "23514": Verdict.REJECTED,
    "25006": Verdict.REFUSED,
    "28000": Verdict.UNAVAILABLE,
    "28P01": Verdict.UNAVAILABLE,
    "3D000": Verdict.UNAVAILABLE,
    "3F000": Verdict.SCHEMA,
    "40001": Verdict.RETRY,
    "40003": Verdict.UNKNOWN,
    "40P01": Verdict.RETRY,
    "42501": Verdict.REFUSED,
    "42601": Verdict.OTHER,
    "42703": Verdict.SCHEMA,
    "42P01": Verdict.SCHEMA,
    "53100": Verdict.UNAVAILABLE,
    "53300": Verdict.UNAVAILABLE,
    "55P03": Verdict.RETRY,
    "57014": Verdict.RETRY,
    "57P01": Verdict.UNKNOWN,
    "57P02": Verdict.UNKNOWN,
    "57P03": Verdict.UNAVAILABLE,
    "58030": Verdict.UNAVAILABLE,
    "XX000": Verdict.OTHER,
    "": Verdict.OTHER,
    "99999": Verdict.OTHER,
}


@pytest.mark.parametrize("state", STATES, ids=str)
def test_sqlstates(state: str | None) -> None:
    assert of_sqlstate(state) is STATES[state]


CODES = {
    None: Verdict.OTHER,
    sqlite3.SQLITE_BUSY: Verdict.RETRY,
    sqlite3.SQLITE_BUSY_SNAPSHOT: Verdict.RETRY,
    sqlite3.SQLITE_BUSY_RECOVERY: Verdict.RETRY,
    sqlite3.SQLITE_LOCKED: Verdict.RETRY,
    sqlite3.SQLITE_LOCKED_SHAREDCACHE: Verdict.RETRY,
    sqlite3.SQLITE_READONLY: Verdict.REFUSED,
    sqlite3.SQLITE_READONLY_DBMOVED: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_FULL: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_IOERR: Verdict.UNKNOWN,
    sqlite3.SQLITE_IOERR_FSYNC: Verdict.UNKNOWN,
    sqlite3.SQLITE_CANTOPEN: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_CORRUPT: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_NOTADB: Verdict.REFUSED,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: Verdict.UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: Verdict.UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_NOTNULL: Verdict.REJECTED,
    sqlite3.SQLITE_CONSTRAINT_TRIGGER: Verdict.REJECTED,
    sqlite3.SQLITE_TOOBIG: Verdict.REJECTED,
    sqlite3.SQLITE_ERROR: Verdict.SCHEMA,
    sqlite3.SQLITE_MISUSE: Verdict.OTHER,
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


def verdict(connection: Connection, *statements: str) -> tuple[str | None, Verdict]:
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
    assert of_sqlstate(states[0]) is Verdict.RETRY


def test_a_serialization_failure(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    one.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    one.execute("SELECT * FROM t")
    other.execute("UPDATE t SET n = 9 WHERE id = 1")
    assert verdict(one, "UPDATE t SET n = 8 WHERE id = 1") == ("40001", Verdict.RETRY)


def test_a_lock_that_is_not_to_be_had(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    other.execute("BEGIN")
    other.execute("UPDATE t SET n = 9 WHERE id = 1")
    assert verdict(one, "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT") == ("55P03", Verdict.RETRY)
    assert verdict(one, "SET lock_timeout = '10ms'", "UPDATE t SET n = 8 WHERE id = 1") == ("55P03", Verdict.RETRY)


SINGLE = {
    "unique": (["INSERT INTO t VALUES (1, 5)"], "23505", Verdict.UNIQUE),
    "division": (["SELECT 1 / (CASE WHEN id > 0 THEN 0 ELSE 1 END) FROM t"], "22012", Verdict.CHECK),
    "no table": (["SELECT * FROM missing"], "42P01", Verdict.SCHEMA),
    "no column": (["SELECT missing FROM t"], "42703", Verdict.SCHEMA),
    "read only": (["SET default_transaction_read_only = on", "DELETE FROM t"], "25006", Verdict.REFUSED),
    "timeout": (["SET statement_timeout = '20ms'", "SELECT pg_sleep(5)"], "57014", Verdict.RETRY),
    "check": (["INSERT INTO t VALUES (3, 1000)"], "23514", Verdict.REJECTED),
    "null": (["INSERT INTO t VALUES (3, NULL)"], "23502", Verdict.REJECTED),
    "range": (["INSERT INTO t VALUES (3, 99999999999)"], "22003", Verdict.REJECTED),
    "text": (["SELECT 'x'::integer"], "22P02", Verdict.REJECTED),
    "syntax": (["SELEC 1"], "42601", Verdict.OTHER),
}


@pytest.mark.parametrize(("statements", "state", "expected"), SINGLE.values(), ids=SINGLE)
def test_real_errors(pair: tuple[Connection, Connection], statements: list[str], state: str, expected: Verdict) -> None:
    assert verdict(pair[0], *statements) == (state, expected)


def test_a_cancelled_statement(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    timer = threading.Timer(0.1, one.cancel_safe)
    timer.start()
    assert verdict(one, "SELECT pg_sleep(10)") == ("57014", Verdict.RETRY)
    timer.join()
    assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_terminated_session(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    other.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
    state, found = verdict(one, "UPDATE t SET n = 5 WHERE id = 1")
    assert state in (None, "57P01")
    assert found is Verdict.UNKNOWN
    assert verdict(one, "SELECT 1") == (None, Verdict.UNKNOWN)


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


def lite(path: Path, *statements: str) -> Verdict:
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
    assert lite(file, "BEGIN IMMEDIATE") is Verdict.RETRY
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
    assert of_sqlite(caught.value.sqlite_errorcode) is Verdict.RETRY
    reader.close()
    writer.close()


def test_sqlite_corrupt(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert lite(file, "SELECT count(*), sum(n) FROM t") is Verdict.UNAVAILABLE


def test_sqlite_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is text\n" * 1000)
    assert lite(tmp_path / "text", "SELECT * FROM t") is Verdict.REFUSED


UNIQUE = Verdict.UNIQUE if DRIVER is sqlite3 else Verdict.REJECTED
"""pysqlite3 0.6 gives primary codes only: it cannot tell a unique index from another constraint."""
LITE = {
    "read only": (["PRAGMA query_only = ON", "DELETE FROM t"], Verdict.REFUSED),
    "full": (
        ["PRAGMA max_page_count = 1", "CREATE TABLE u AS SELECT a.n FROM t a, t b LIMIT 90000"],
        Verdict.UNAVAILABLE,
    ),
    "primary key": (["INSERT INTO t VALUES (1, -1)"], UNIQUE),
    "unique": (["INSERT INTO t VALUES (-1, 1)"], UNIQUE),
    "null": (["INSERT INTO t VALUES (-1, NULL)"], Verdict.REJECTED),
    "too big": (["SELECT zeroblob(1 << 31)"], Verdict.REJECTED),
    "no table": (["SELECT * FROM missing"], Verdict.SCHEMA),
    "no column": (["SELECT missing FROM t"], Verdict.SCHEMA),
}


@pytest.mark.parametrize(("statements", "expected"), LITE.values(), ids=LITE)
def test_real_errors_of_sqlite(file: Path, statements: list[str], expected: Verdict) -> None:
    assert lite(file, *statements) is expected


def test_sqlite_cannot_open(tmp_path: Path) -> None:
    with pytest.raises(DRIVER.Error) as caught:
        DRIVER.connect(tmp_path / "missing" / "a.db")
    assert of_sqlite(caught.value.sqlite_errorcode) is Verdict.UNAVAILABLE
