"""The proxy between client and PostgreSQL: it counts round trips exactly, and cuts where it is told to."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

pytestmark = pytest.mark.postgres


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with an empty table t(n), without a detour."""
    url = postgres_server.create_database()
    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int)")
    yield plain
    postgres_server.drop_database(url)


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[PostgresProxy]:
    with PostgresProxy("127.0.0.1", postgres_server.port) as between:
        yield between


@pytest.fixture
def client(proxy: PostgresProxy, dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(proxy.url_for(dsn), autocommit=True) as connection:
        yield connection


def rows(dsn: str) -> list[int]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM t ORDER BY n")]


def test_url_keeps_all_but_the_server(proxy: PostgresProxy) -> None:
    url = proxy.url_for("postgresql+psycopg://me:secret@elsewhere:5432/db?application_name=x")
    assert url == f"postgresql+psycopg://me:secret@127.0.0.1:{proxy.port}/db?application_name=x"


def test_opening_a_connection_counts_as_none(proxy: PostgresProxy, client: psycopg.Connection) -> None:
    assert proxy.round_trips == 0


@pytest.mark.parametrize("query", [b"SELECT 1", b"INSERT INTO t VALUES (1)"])
def test_simple_query_is_one_round_trip(proxy: PostgresProxy, client: psycopg.Connection, query: bytes) -> None:
    client.execute(query)
    assert proxy.round_trips == 1


def test_execute_with_parameters_is_one_round_trip(proxy: PostgresProxy, client: psycopg.Connection) -> None:
    assert client.execute("SELECT %s::int", [7]).fetchone() == (7,)
    assert proxy.round_trips == 1
    proxy.reset()
    assert proxy.round_trips == 0


def test_pipeline_is_one_round_trip(proxy: PostgresProxy, client: psycopg.Connection) -> None:
    with client.pipeline():
        for number in range(10):
            client.execute("INSERT INTO t VALUES (%s)", [number], prepare=False)
    assert proxy.round_trips == 1


def test_transaction_is_counted_statement_by_statement(proxy: PostgresProxy, client: psycopg.Connection) -> None:
    with client.transaction():
        client.execute("INSERT INTO t VALUES (%s)", [1])
    assert proxy.round_trips == 3  # BEGIN, INSERT, COMMIT


def test_connections_are_counted_apart(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    with psycopg.connect(proxy.url_for(dsn), autocommit=True) as other:
        other.execute("SELECT 1")
        other.execute("SELECT 1")
        client.execute("SELECT 1")
    assert proxy.round_trips_by_connection == [1, 2]


def test_large_answers_pass(client: psycopg.Connection) -> None:
    answers = client.execute("SELECT repeat('x', 10000) FROM generate_series(1, 2000)").fetchall()
    assert sum(len(text) for (text,) in answers) == 20_000_000


def test_cut_after_send_loses_the_answer_and_not_the_effect(
    proxy: PostgresProxy, client: psycopg.Connection, dsn: str
) -> None:
    cut = proxy.cut_after_send(lambda message: b"INSERT" in message)
    with pytest.raises(psycopg.OperationalError):
        client.execute("INSERT INTO t VALUES (%s)", [1])
    assert cut.fired.wait(5)
    assert rows(dsn) == [1]


def test_cut_after_send_loses_the_answer_of_a_commit(
    proxy: PostgresProxy, client: psycopg.Connection, dsn: str
) -> None:
    proxy.cut_after_send(lambda message: message[:1] == b"Q" and b"COMMIT" in message)
    with pytest.raises(psycopg.OperationalError), client.transaction():
        client.execute("INSERT INTO t VALUES (1)")
    assert rows(dsn) == [1]


def test_cut_before_send_loses_the_effect(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    cut = proxy.cut_before_send(lambda message: b"COMMIT" in message)
    with pytest.raises(psycopg.OperationalError), client.transaction():
        client.execute("INSERT INTO t VALUES (1)")
    assert cut.fired.is_set()
    assert rows(dsn) == []


def test_answers_before_the_cut_arrive(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    proxy.cut_after_send(lambda message: b"INSERT" in message, nth=3)
    for number in (1, 2):
        client.execute("INSERT INTO t VALUES (%s)", [number])
    with pytest.raises(psycopg.OperationalError):
        client.execute("INSERT INTO t VALUES (%s)", [3])
    assert rows(dsn) == [1, 2, 3]


def test_earlier_round_trips_of_a_pipeline_are_answered(
    proxy: PostgresProxy, client: psycopg.Connection, dsn: str
) -> None:
    cut = proxy.cut_after_send(lambda message: b"SELECT 2" in message)
    with pytest.raises(psycopg.OperationalError), client.pipeline() as pipeline:  # noqa: PT012
        first = client.execute("SELECT 1")
        pipeline.sync()
        assert first.fetchone() == (1,)
        client.execute("SELECT 2")
        pipeline.sync()
    assert cut.fired.is_set()


def test_cut_happens_once_and_others_go_on(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    with psycopg.connect(proxy.url_for(dsn), autocommit=True) as other:
        proxy.cut_after_send(lambda message: b"INSERT" in message)
        with pytest.raises(psycopg.OperationalError):
            client.execute("INSERT INTO t VALUES (1)")
        other.execute("INSERT INTO t VALUES (2)")
    assert rows(dsn) == [1, 2]


def test_reset_withdraws_cuts(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    proxy.cut_after_send(lambda message: b"INSERT" in message)
    proxy.reset()
    client.execute("INSERT INTO t VALUES (1)")
    assert rows(dsn) == [1]


def test_cut_all(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    proxy.cut_all()
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    with psycopg.connect(proxy.url_for(dsn)) as again:
        assert again.execute("SELECT 1").fetchone() == (1,)


def test_cancellation_passes(proxy: PostgresProxy, client: psycopg.Connection, dsn: str) -> None:
    client.execute("SET application_name = 'sleeper'")
    with client.pipeline():  # sends, and does not wait for the answer
        sleep = client.execute("SELECT pg_sleep(30)")
        client.pgconn.flush()
        assert wait_until(lambda: sleeps(dsn), 10)  # a cancellation that comes too early does nothing
        client.cancel_safe(timeout=5)
        with pytest.raises(psycopg.errors.QueryCanceled):
            sleep.fetchone()


def sleeps(dsn: str) -> bool:
    question = "SELECT FROM pg_stat_activity WHERE application_name = 'sleeper' AND wait_event = 'PgSleep'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(question).fetchone() is not None
