"""The hot statements on the wire: the same rows as by a cursor, the same errors, and a deadline that holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import psycopg
import pytest

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.connection import NothingSent, OutOfTime
from metastore.backends.postgres.errors import outcome
from metastore.backends.postgres.wire import Wire
from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded
from metastore.port.commit import Unknown
from metastore.urls import parse_url

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
