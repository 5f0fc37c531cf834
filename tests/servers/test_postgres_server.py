"""The PostgreSQL of the tests: it starts, is killed, recovers, copies databases, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer, ended
from tests.servers.process import reachable_by_others, wait_until

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"work_mem": "5MB"}) as started:
        yield started


def value(dsn: str, question: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def test_answers_over_tcp_and_the_socket(server: PostgresServer) -> None:
    assert value(server.dsn(), "SELECT 1") == 1
    assert value(server.socket_dsn(), "SELECT 1") == 1


def test_url_is_for_sqlalchemy(server: PostgresServer) -> None:
    engine = sqlalchemy.create_engine(server.url())
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
    engine.dispose()


def test_settings_are_taken_over(server: PostgresServer) -> None:
    assert value(server.dsn(), "SHOW work_mem") == "5MB"
    assert value(server.dsn(), "SHOW fsync") == "off"


def test_database_is_copied_from_a_template(server: PostgresServer) -> None:
    template = server.create_database("template_of_mine")
    with psycopg.connect(server.dsn("template_of_mine"), autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS n")
    copy = server.create_database(template="template_of_mine")
    assert value(copy.replace("+psycopg", ""), "SELECT n FROM t") == 42
    for url in (copy, template, copy):  # the last is gone already
        server.drop_database(url)


def test_drop_sends_clients_away(server: PostgresServer) -> None:
    url = server.create_database()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        server.drop_database(url)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_restart_keeps_port_and_data(server: PostgresServer) -> None:
    port = server.port
    server.create_database("kept")
    server.restart()
    assert server.port == port
    assert value(server.dsn("kept"), "SELECT 1") == 1


def test_kill_loses_nothing_that_was_committed(server: PostgresServer) -> None:
    server.create_database("killed")
    with psycopg.connect(server.dsn("killed"), autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS n")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.start()
    assert value(server.dsn("killed"), "SELECT n FROM t") == 42


def test_password_is_asked_for_over_tcp() -> None:
    with PostgresServer(password="a/b c") as server:
        assert value(server.dsn(), "SELECT 1") == 1
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.dsn().replace("a%2Fb%20c", "wrong"))


def test_start_that_fails_shows_the_log() -> None:
    server = PostgresServer(settings={"no_such_setting": "1"})
    with pytest.raises(RuntimeError, match="no_such_setting"):
        server.__enter__()
    server.stop()
    assert not server.folder.exists()


@pytest.mark.only_whole
def test_programs_are_copied_when_the_server_cannot_reach_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root runs the server as somebody else")
    tmp_path.chmod(0o700)
    assert not reachable_by_others(tmp_path)
    monkeypatch.setattr("tests.servers.postgres.reachable_by_others", lambda path: False)
    with PostgresServer() as server:
        assert server.programs.is_relative_to(server.folder)
        assert value(server.dsn(), "SELECT 1") == 1


SCRIPT = """
import time
from tests.servers.postgres import PostgresServer
server = PostgresServer().__enter__()
print(server.pid, server.folder, flush=True)
time.sleep(60)
"""


@pytest.mark.only_whole
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_server_ends_with_the_process_that_started_it(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, _, folder = owner.stdout.readline().strip().partition(" ")
        postmaster = psutil.Process(int(pid))
        family = [postmaster, *postmaster.children(recursive=True)]
        assert len(family) > 3
        owner.send_signal(how)
    assert wait_until(lambda: all(map(ended, family)), 10)
    with PostgresServer():  # sweeps
        assert not Path(folder).exists()


def test_pgbouncer_shares_connections_between_transactions(pgbouncer: PgBouncer) -> None:
    dsn = pgbouncer.url("postgres").replace("+psycopg", "")
    clients = [psycopg.connect(dsn, autocommit=True, prepare_threshold=None) for _ in range(8)]
    backends = {row[0] for client in clients for row in client.execute("SELECT pg_backend_pid()")}
    for client in clients:
        client.close()
    assert 1 <= len(backends) <= pgbouncer.pool_size
