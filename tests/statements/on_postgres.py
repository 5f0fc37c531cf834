"""A PostgreSQL whose clients stop before each statement, and before each COMMIT.

The library sends one message; here its statements are sent one by one, in one transaction. A statement that is a
transaction by itself gets a BEGIN and a COMMIT. It locks and sees the same as alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Self
from unittest.mock import patch

import psycopg

from metastore.backends.postgres import connect as postgres_connect
from metastore.backends.postgres import sending
from metastore.backends.postgres.backend import PostgresBackend
from metastore.backends.postgres.connection import Connection
from metastore.backends.postgres.parameters import Statement
from metastore.backends.postgres.reads import _Decided
from metastore.backends.postgres.wire import Wire
from metastore.port.backend import Backend
from metastore.urls import parse_url
from tests.interleaving.world import START
from tests.statements.content import COLUMNS, ORDER, Content, content_of
from tests.statements.footprint import together, touched_by
from tests.statements.gate import Kind, Time, Touched, Worker, current

__all__ = ["PostgresDatabase"]

Rewrite = Callable[[str], str]
Step = Callable[[str, Any], None]
"""Told of a statement and its parameters before it is sent."""

_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|FOR (NO )?(KEY )?(SHARE|UPDATE))\b")
_TABLES = {
    "guard": "id",
    "entity": "id",
    "owned": "id",
    "relation": "id",
    "operation": "operation_id, ordinal",
    "lease": "name",
    "lease_waiter": "name, ticket",
    "staged": "id",
    "ticket": "entity_id, number",
    "info": "id",
}
_NUMBERS = ("entity_id_seq", "change_seq")
_PREPARE = f"""CREATE SCHEMA seed;
CREATE SEQUENCE test_time MINVALUE 0 START {START};
SELECT nextval('test_time');
CREATE FUNCTION test_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
  SELECT timestamptz 'epoch' + last_value * interval '1 microsecond' FROM test_time $$"""
_LASTING = [table for table in _TABLES if table != "ticket"]  # a ticket that a crash forgets is taken again
_CHANGED = " OR ".join(f"EXISTS (SELECT FROM {table} WHERE xmin = own.id)" for table in _LASTING)
_ASYNCHRONOUS = f"""SELECT current_setting('synchronous_commit') = 'off' AND ({_CHANGED})
FROM (SELECT pg_current_xact_id_if_assigned()::xid AS id) AS own"""
"""Whether the present transaction has written a row, and its COMMIT would not wait until that is on the disk."""
_CONNECTION = Connection
_VACUUM_AFTER = 300
"""After how many resets the dead rows are removed."""


class PostgresDatabase:
    """One database, made with ``migrate`` and nothing else in it. Its workers' connections are kept."""

    naps = 0
    name = "PostgreSQL"

    def __init__(self, url: str, rewrite: Rewrite = str) -> None:
        self.time = Time()
        self._url = parse_url(url)
        self._admin = psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True)
        self._admin.prepare_threshold = None
        self._admin.execute(_PREPARE)
        self._admin.execute(f'ALTER DATABASE "{self._admin.info.dbname}" SET synchronous_commit = off'.encode())
        for table in _TABLES:  # it would lock, at any moment, what it cuts off
            self._admin.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
        self._backends: list[PostgresBackend] = []
        self._resets = 0
        self._dump = _dump_statement()
        self._contents: dict[Any, Content] = {}
        self._began = START
        self._installed = ExitStack()
        self._asynchronous: list[str] = []
        gated = _gated(rewrite, self._asynchronous.append)
        self._installed.enter_context(patch.object(postgres_connect, "Connection", gated))
        self._installed.enter_context(patch.object(postgres_connect.Pool, "_set_up", _set_up))
        self._installed.enter_context(patch.object(sending, "rows_of_writes", _rows_of_writes))
        self._installed.enter_context(patch.object(postgres_connect.Pool, "send", _sent_together))
        # each statement goes through a cursor, which is where its gate is
        self._installed.enter_context(patch.object(Wire, "_is_frequent", lambda *_: False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for backend in self._backends:
            backend.close()
        self._admin.close()
        self._installed.close()

    def backend(self, number: int) -> Backend:
        """Return the backend of a process; it has forgotten what it knew of the feed."""
        while len(self._backends) <= number:
            self._backends.append(PostgresBackend(self._url, 30.0))
            self._backends[-1].identify()  # as at open: no schedule has this read, then
        backend = self._backends[number]
        backend._decided = _Decided(None)
        return backend

    def change(self, text: str) -> None:
        """Change the schema, for a mutant."""
        self._admin.execute(text.encode())

    # --- what a schedule starts from

    def clear(self) -> None:
        """Remove everything, before a setup."""
        self.time.at = START
        tables = ", ".join(t for t in _TABLES if t not in ("info", "guard"))
        numbers = "; ".join(f"ALTER SEQUENCE {n} RESTART" for n in _NUMBERS)
        rest = "DELETE FROM guard WHERE id <> 0; UPDATE info SET writer = 99, forgotten = 0, collected_seq = 0"
        self._admin.execute(f"TRUNCATE {tables}; {numbers}; {rest}".encode())
        self._set_time()

    def keep(self) -> None:
        """Let what is there now be what each schedule starts from."""
        (drawn,) = self._admin.execute(
            "SELECT " + ", ".join(f"(SELECT last_value FROM {n})" for n in _NUMBERS)
        ).fetchall()
        parts = [f"DROP TABLE IF EXISTS seed.{t}; CREATE TABLE seed.{t} AS TABLE {t}" for t in _TABLES]
        self._admin.execute("; ".join(parts).encode())
        self._admin.execute("VACUUM ANALYZE")
        resets: list[str] = []
        for table, key in _TABLES.items():
            same = " AND ".join(f"s.{k} = {table}.{k}" for k in key.split(", "))
            resets += [
                f"DELETE FROM {table} WHERE {table} IS DISTINCT FROM (SELECT s FROM seed.{table} s WHERE {same})",
                f"INSERT INTO {table} SELECT * FROM seed.{table} ON CONFLICT DO NOTHING",
            ]
        numbers = {**dict(zip(_NUMBERS, drawn, strict=True)), "test_time": self.time.at}
        resets += [f"PERFORM setval('{n}', {value})" for n, value in numbers.items()]
        body = f"BEGIN {'; '.join(resets)}; END"
        self._admin.execute(
            f"CREATE OR REPLACE FUNCTION seed.reset() RETURNS void LANGUAGE plpgsql AS $$ {body} $$".encode()
        )
        self._began = self.time.at
        self._contents.clear()

    def reset(self) -> None:
        """Put back what was kept."""
        self._asynchronous.clear()
        self.time.at = self._began
        self._resets += 1
        if self._resets % _VACUUM_AFTER == 0:
            self._admin.execute("VACUUM guard, entity, owned, relation, operation, lease, info")
        self._admin.execute("SELECT seed.reset()", prepare=True)

    def pass_time(self, until: int) -> None:
        if until > self.time.at:
            self.time.at = until
            self._set_time()

    def _set_time(self) -> None:
        self._admin.execute("SELECT setval('test_time', %s)", (self.time.at,))

    def content(self) -> Content:
        row = self._admin.execute(self._dump, prepare=True).fetchone()
        assert row is not None
        found = self._contents.get(row)
        if found is None:
            found = content_of({t: json.loads(text or "[]") for t, text in zip(COLUMNS, row, strict=True)})
            self._contents[row] = found
        forgettable = [f"a crash of the server would forget what was written by: {t}" for t in self._asynchronous]
        return found._replace(left=(*found.left, *forgettable))

    def problems(self) -> list[str]:
        """Return what ``verify`` finds."""
        from metastore.verify.verify import verify

        return [v.message for v in verify(self.backend(0))]

    # --- locks

    def waiting(self, asked: Sequence[Worker], among: Sequence[Worker]) -> set[Worker]:
        """Return those whose statement waits for a lock that one ``among`` the workers has, or waits for itself."""
        text = "SELECT p FROM unnest(%s::int[]) AS p WHERE pg_blocking_pids(p) && %s::int[]"
        pids = [w.pid for w in asked], [w.pid for w in among if w.pid]
        waits = {row[0] for row in self._admin.execute(text, pids, prepare=True)}
        return {w for w in asked if w.pid in waits}

    def cancel(self, worker: Worker, *, deadlock: bool) -> None:
        """End the wait of a worker as the server would: it has waited too long, or is in a deadlock."""
        worker.error = psycopg.errors.DeadlockDetected if deadlock else psycopg.errors.LockNotAvailable
        self._admin.execute("SELECT pg_cancel_backend(%s)", (worker.pid,))


def _dump_statement() -> str:
    parts = []
    for table, columns in COLUMNS.items():
        rows = f"SELECT json_build_array({', '.join(columns)}) AS r FROM {table} ORDER BY {', '.join(ORDER[table])}"
        parts.append(f"(SELECT json_agg(r)::text FROM ({rows}) AS t)")
    return "SELECT " + ", ".join(parts)


def _gated(rewrite: Rewrite, told: Callable[[str], None]) -> type[Connection]:
    """Return the connections' class; ``rewrite`` is what a mutant does to each text.

    ``told`` hears of a COMMIT that has changed something, and which a crash of the server could forget.
    """

    @lru_cache(4096)
    def changed(text: str) -> str:
        return rewrite(text.replace("clock_timestamp()", "test_clock()"))

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            if not isinstance(query, str):
                return super().execute(query, params, **options)
            text, worker = changed(query), current()
            connection: Any = self.connection
            if worker is None or connection.within:
                return super().execute(text, params, **options)
            worker.pid = connection.info.backend_pid
            kind = _kind(text)
            if kind in ("read", "inner"):
                worker.gate(kind, text)
                return super().execute(text, params, **options)
            with _transaction(connection, worker) as step:
                params = _patient(params, worker)
                step(text, params)
                return super().execute(text, params, **options)

    class Connection(_CONNECTION):
        asynchronous = staticmethod(told)
        within = False
        """In a transaction whose statements find their gates elsewhere."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.cursor_factory = Cursor

        @contextmanager
        def pipeline(self) -> Iterator[Any]:
            worker = current()
            if worker is not None:
                worker.pid = self.info.backend_pid
                worker.gate("read", "several reads in one transaction")
            self.within = True
            try:
                with super().pipeline() as pipeline:
                    yield pipeline
            finally:
                self.within = False

    return Connection


def _kind(text: str) -> Kind:
    if _WRITES.search(text):
        return "write"
    return "inner" if text.startswith("SELECT nextval") else "read"  # a number that nobody else gets


_SET_UP, _SEND = postgres_connect.Pool._set_up, postgres_connect.Pool.send


def _set_up(pool: postgres_connect.Pool, connection: Any) -> Any:
    """What is said when a connection is opened is nobody's statement."""
    connection.within = True
    try:
        return _SET_UP(pool, connection)
    finally:
        connection.within = False


@contextmanager
def _transaction(connection: Any, worker: Worker) -> Iterator[Step]:
    """A transaction with a gate before each statement, which is to be told, and one before its COMMIT."""
    raw = psycopg.Cursor(connection)
    begun, sent = False, ""
    touched: Touched | None = Touched()

    def step(text: str, parameters: Any) -> None:
        nonlocal begun, touched, sent
        sent = " ".join(text.split())[:160]
        kind, now = _kind(text), touched_by(text, parameters)
        touched = together(touched, now)
        worker.gate(kind, text, touched=now)
        if not begun:
            raw.execute("BEGIN")
            begun = worker.writing = True

    connection.within = True
    try:
        yield step
        worker.gate("commit", touched=touched)
        if begun and raw.execute(_ASYNCHRONOUS, prepare=True).fetchone() == (True,):
            connection.asynchronous(sent)
        raw.execute("COMMIT")
    except BaseException as error:
        if begun and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            raw.execute("ROLLBACK")
        if isinstance(error, psycopg.errors.QueryCanceled) and worker.error is not None:
            meant, worker.error = worker.error, None
            raise meant(f"{worker.atom}: waited in vain") from error
        raise
    finally:
        connection.within = worker.writing = worker.patient = False
        worker.freed = True


def _patient(parameters: Any, worker: Worker | None) -> Any:
    """Let a statement wait for locks without end: whether its patience is over is for the scheduler to say."""
    if not isinstance(parameters, Mapping) or parameters.get("patience") is None:
        return parameters
    if worker is not None:
        worker.patient = True
    return {**parameters, "patience": "0"}


def _sent_together(
    pool: postgres_connect.Pool,
    statements: Sequence[tuple[str, Any]],
    pooled: Any,
    run: str | None = None,
    behind: tuple[str, Any] | None = None,
    *,
    prepared: bool = True,
) -> list[list[Any]]:
    """Replace the method of that name, which sends a batch's statements as one message.

    What is sent behind them is left out: it is a hint to look, and a waiter looks anyway.
    """
    worker = current()
    if worker is None:
        return _SEND(pool, statements, pooled, run, behind, prepared=prepared)
    with pool.connection() as connection:
        worker.pid = connection.info.backend_pid
        rows: list[list[Any]] = []
        with _transaction(connection, worker) as step:
            for text, given in statements:
                parameters = _patient(given, worker)
                step(text, parameters)
                cursor = connection.execute(text, parameters)
                rows.append(cursor.fetchall() if cursor.description else [])
        return rows


def _rows_of_writes(connection: Any, statements: Sequence[Statement], run: str | None = None) -> list[tuple[Any, ...]]:
    """Replace the function of that name, which sends all of them as one message."""
    worker = current()
    if worker is None:
        return _send(connection, statements, lambda text, parameters: None)
    worker.pid = connection.info.backend_pid
    with _transaction(connection, worker) as step:
        return _send(connection, statements, step)


def _send(connection: Any, statements: Sequence[Statement], step: Step) -> list[tuple[Any, ...]]:
    worker = current()
    rows: list[tuple[Any, ...]] = []
    for statement in statements:
        parameters = _patient(statement.parameters, worker)
        step(statement.text, parameters)
        cursor = connection.execute(statement.text, parameters)
        if statement.writes:
            rows += cursor.fetchall()
    return rows
