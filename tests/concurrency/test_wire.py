"""The hot statements on the wire: the same rows as by a cursor, the same errors, and a deadline that holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID, uuid4

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.backend import PostgresBackend
from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.connection import NothingSent, OutOfTime
from metastore.backends.postgres.errors import outcome
from metastore.backends.postgres.wire import Wire
from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded
from metastore.port.commit import Conflicted, Unknown
from metastore.urls import parse_url
from tests.combine.gate import lanes, together
from tests.concurrency.raw import dsn

VALUES = """SELECT %(text)s::text, %(number)s::bigint, %(flag)s::boolean, %(id)s::uuid, %(none)s::text,
  %(ids)s::bigint[], '%%'::text, %(text)s::text || 'x' FROM generate_series(1, 2)"""
SLEEP = "SELECT 1 FROM pg_sleep(%(seconds)s::float8)"


@pytest.fixture
def pool(postgres_url: str) -> Iterator[Pool]:
    """Give a pool whose statements take as long as they want."""
    opened = Pool(parse_url(postgres_url), 60.0)
    yield opened
    opened.close()


def wires(pool: Pool) -> list[Wire]:
    return [place.wire for place in pool._pool._places if place.connection is not None]


def test_the_same_rows_before_and_after_it_is_prepared(pool: Pool) -> None:
    own: UUID = uuid4()
    given = {"text": "ü\u0001'\"\\{", "number": 2**40, "flag": True, "id": own, "none": None, "ids": "{1,2,NULL}"}
    row = (given["text"], 2**40, True, own, None, [1, 2, None], "%", f"{given['text']}x")
    for execution in range(1, 6):
        assert pool.fetch(VALUES, given) == [row, row]
        (wire,) = wires(pool)
        assert len(wire._names) == int(execution > 2)
    assert pool.fetch(VALUES, {**given, "flag": False})[0][2] is False


def test_an_error_is_told_although_the_session_ends_behind_it(pool: Pool) -> None:
    results = Wire._results

    def cut(self: Wire, message: bytes) -> list[Any]:
        if message == b"ROLLBACK":
            raise psycopg.OperationalError("the server closed the connection")
        return results(self, message)

    divided: list[tuple[str, dict[str, Any]]] = [("SELECT 1 / 0", {})]
    with patch.object(Wire, "_results", cut), pytest.raises(psycopg.errors.DivisionByZero):
        pool.send(divided, lambda _: [], behind=("SELECT 1", {}), prepared=False)


def test_errors_are_those_of_the_database(pool: Pool) -> None:
    for _ in range(5):
        with pytest.raises(psycopg.errors.DivisionByZero) as caught:
            pool.fetch("SELECT 1 / %(n)s::int", {"n": 0})
        assert caught.value.sqlstate == "22012"
    assert pool.fetch("SELECT 1 / %(n)s::int", {"n": 1}) == [(1,)]


def test_a_text_with_nul_is_refused_and_not_cut(pool: Pool) -> None:
    for _ in range(5):
        with pytest.raises(psycopg.DataError):
            pool.fetch("SELECT %(text)s::text", {"text": "a\x00b"})
    assert pool.fetch("SELECT %(text)s::text", {"text": "ab"}) == [("ab",)]


def test_a_deadline_holds_and_the_connection_is_thrown_away(pool: Pool) -> None:
    for _ in range(4):
        assert pool.fetch(SLEEP, {"seconds": 0}) == [(1,)]
    (before,) = wires(pool)
    began = time.monotonic()
    with until(SYSTEM.monotonic() + 0.3), pytest.raises((OutOfTime, psycopg.errors.QueryCanceled)):
        pool.fetch(SLEEP, {"seconds": 30})
    assert time.monotonic() - began < 10
    assert pool.fetch(SLEEP, {"seconds": 0}) == [(1,)]
    assert before not in wires(pool)


@pytest.mark.parametrize("way", ["execute", "rows", "message", "first message"])
def test_what_has_no_time_left_is_never_sent(pool: Pool, way: str) -> None:
    """So it is not applied, and the connection is as good as before. libpq sends at once what it is given."""
    insert = "INSERT INTO made SELECT %(n)s::bigint RETURNING n"
    with pool.connection() as connection:
        connection.execute("CREATE TABLE made (n bigint)")
    for n in range(4):
        assert pool.fetch(insert, {"n": n}) == [(n,)]
    (wire,) = wires(pool)
    sends: dict[str, Callable[[], object]] = {
        "execute": lambda: wire._connection.execute(insert, {"n": 9}),
        "rows": lambda: wire.rows(insert, {"n": 9}),
        "message": lambda: wire.message([(insert, {"n": 9})]),
        "first message": lambda: wire.message([(f"{insert}, n", {"n": 9})]),
    }
    with until(SYSTEM.monotonic() - 1), pytest.raises(NothingSent) as never:
        sends[way]()
    with pytest.raises(DeadlineExceeded):
        outcome(never.value)
    assert pool.fetch("SELECT n FROM made ORDER BY n", {}) == [(0,), (1,), (2,), (3,)]
    assert pool.fetch(insert, {"n": 4}) == [(4,)]
    assert wires(pool) == [wire]


def test_an_answer_that_does_not_come_leaves_the_outcome_unknown() -> None:
    assert outcome(OutOfTime("no answer in time")) == Unknown("OutOfTime")


def test_what_psycopg_deallocates_is_prepared_again(pool: Pool) -> None:
    """psycopg sends DEALLOCATE ALL behind a ROLLBACK, if the session has statements that it prepared itself."""
    for _ in range(3):
        assert pool.fetch("SELECT %(n)s::int + 1", {"n": 1}) == [(2,)]
    (wire,) = wires(pool)
    (before,) = wire._names.values()
    with pool.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    assert pool.fetch("SELECT %(n)s::int + 1", {"n": 2}) == [(3,)]
    (after,) = wire._names.values()
    assert (wires(pool), after != before) == ([wire], True)


MANY = 40
SESSION = """SELECT (SELECT count(*) FROM pg_prepared_statements),
  (SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts)"""


@pytest.mark.parametrize("locked", ["entity", "guard"])
def test_batches_that_fail_leave_nothing_in_the_session(postgres_url: str, locked: str) -> None:
    """Neither one that meets a lock in its first statement, nor one that meets it later. A statement takes 360 kB."""
    with ms.open(postgres_url, pool_size=1) as store, psycopg.connect(dsn(postgres_url)) as other:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        tables = [store.tables.create(f"m.c.s.t{n}", parents=True) for n in range(2)]
        backend = cast(PostgresBackend, store._session.backend)
        calls = [
            partial(store.tables.create, "m.c.s.new"),
            partial(store.tables.alter, tables[0], ms.SetComment("x")),
            partial(store.tables.rename, tables[1], "renamed"),
        ]
        with patch.object(backend, "write_together", wraps=backend.write_together) as sent:
            assert all(isinstance(answer, ms.Table) for answer in together(lanes(store)[1], calls))
        batch = sent.call_args.args[0]
        assert (len(batch.inserts), len(batch.alters), len(batch.updates)) == (1, 1, 1)
        # what is altered, which all is locked at first; and the parent of what is created
        row = {"entity": tables[0].id, "guard": store.schemas.load("m.c.s").id}[locked]
        other.execute(f"SELECT FROM {locked} WHERE id = %s FOR UPDATE".encode(), (row,))
        used = []
        for _ in range(MANY):
            assert backend.write_together(batch, 5) == Conflicted("busy")
            used += backend._rows(SESSION, {})
        statements, memory = zip(*used[-MANY // 2 :], strict=True)
        assert max(statements) == min(statements) < 20
        assert max(memory) - min(memory) < 1_000_000


def test_a_message_remembers_what_it_prepared_before_it_failed(pool: Pool) -> None:
    """And prepares nothing twice, also if a statement occurs twice, or one is not even known to the server."""
    good, bad, unknown = "SELECT %(n)s::int", "SELECT 1 / %(n)s::int", "SELECT %(n)s::int FROM nowhere"

    def send(*texts: str) -> list[list[tuple[Any, ...]]]:
        return pool.send([(text, {"n": n}) for n, text in enumerate(texts)], lambda _: [])

    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            send(bad, good)
        with pytest.raises(psycopg.errors.UndefinedTable):
            send(good, unknown)
        assert send(good, good, bad) == [[(0,)], [(1,)], [(0,)]]
        with pool.connection() as connection:
            counted = connection.execute("SELECT count(*) FROM pg_prepared_statements", prepare=False)
            assert counted.fetchall() == [(2,)]
    with pool.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    assert send(f"{good} + 1", good) == [[(1,)], [(1,)]]


def test_a_message_sends_every_text_as_it_is(pool: Pool) -> None:
    own = uuid4()
    given = {
        "text": 'it\'s \\ "ü" \n;--',
        "number": -(2**40),
        "flag": False,
        "id": own,
        "none": None,
        "ids": "{1,NULL}",
    }
    row = (given["text"], -(2**40), False, own, None, [1, None], "%", f"{given['text']}x")
    for _ in range(3):
        assert pool.send([(VALUES, given), ("SELECT 1", {})], lambda _: []) == [[row, row], [(1,)]]
    with pytest.raises(psycopg.DataError):
        pool.send([(VALUES, {**given, "text": "a\x00b"}), ("SELECT 1", {})], lambda _: [])
