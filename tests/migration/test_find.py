"""Revision 0004, the index of names: made on a database that is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import migrations
from metastore.migrations.versions import v0004_find
from metastore.port.format import SCHEMA_FORMAT
from metastore.urls import parse_url
from tests.contract.ground import dump
from tests.migration.processes import Crowd
from tests.migration.schema import catalog, connected, differences
from tests.migration.test_running import fill
from tests.servers.pgbouncer import PgBouncer
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

OLD = "0003"


@pytest.fixture
def old_url(empty_url: str) -> str:
    """Give a database of format 3 with a little of everything in it."""
    ms.migrate(empty_url)
    fill(empty_url)
    migrations.downgrade(parse_url(empty_url), OLD)
    return empty_url


def write(url: str) -> None:
    """Write to the guards, as programs of every format do."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("SET lock_timeout = '1s'")
        connection.execute("UPDATE guard SET scope_version = scope_version + 1 WHERE id = 1")


def test_there_and_back(old_url: str, declared: str) -> None:
    before = catalog(old_url)
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        rows = dump(opened._session.backend)
    migrations.downgrade(parse_url(old_url), OLD)
    assert catalog(old_url) == before
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        assert dump(opened._session.backend) == rows
    assert differences(old_url, declared) == []
    with connected(old_url) as connection:
        assert connection.exec_driver_sql("SELECT format, compatible_from FROM info").one() == (
            SCHEMA_FORMAT,
            SCHEMA_FORMAT,
        )


@pytest.fixture
def old_postgres_url(empty_postgres_url: str) -> str:
    """Give a PostgreSQL database of format 3 with a little of everything in it."""
    ms.migrate(empty_postgres_url)
    fill(empty_postgres_url)
    migrations.downgrade(parse_url(empty_postgres_url), OLD)
    return empty_postgres_url


@contextmanager
def writing(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Keep a transaction open that wrote to the guards: who builds an index waits for its end."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE guard SET scope_version = scope_version WHERE id = 0")
        yield connection
        connection.rollback()


@contextmanager
def waiting(url: str, statement: str, run: Callable[[], object]) -> Iterator[Future[object]]:
    """Run a function in a thread, until a session of the database waits in a statement that begins like this."""
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as watch:
        future = pool.submit(run)
        assert wait_until(lambda: future.done() or bool(sessions(watch, statement)), 60)
        assert not future.done()
        yield future


def sessions(connection: psycopg.Connection[Any], statement: str) -> list[int]:
    """Return the processes of this database that wait for a lock in such a statement."""
    text = """SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
      AND query LIKE %s || '%%'"""
    return [row[0] for row in connection.execute(text, (statement,)).fetchall()]


@pytest.mark.postgres
def test_writers_go_on_while_it_is_built(old_postgres_url: str, declared_postgres_url: str) -> None:
    migrate = partial(ms.migrate, old_postgres_url)
    with (
        writing(old_postgres_url) as open_transaction,
        waiting(old_postgres_url, "CREATE INDEX CONCURRENTLY", migrate) as migrated,
    ):
        for _ in range(5):
            write(old_postgres_url)
        assert not migrated.done()
        open_transaction.rollback()
        migrated.result(60)
    assert differences(old_postgres_url, declared_postgres_url) == []


@pytest.mark.postgres
def test_writers_would_wait_behind_a_migration_that_waits_for_long(
    old_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what the migration did before, beside the same open transaction."""
    monkeypatch.setattr(migrations, "build_pending", lambda *_: None)
    monkeypatch.setattr(migrations, "_LOCK_TIMEOUT", "60s")
    migrate = partial(ms.migrate, old_postgres_url)
    with (
        writing(old_postgres_url) as open_transaction,
        waiting(old_postgres_url, "LOCK TABLE", migrate) as migrated,
    ):
        with pytest.raises(psycopg.errors.LockNotAvailable):
            write(old_postgres_url)
        open_transaction.rollback()
        migrated.result(60)


@pytest.mark.postgres
def test_an_index_whose_building_was_interrupted_is_built_again(
    old_postgres_url: str, declared_postgres_url: str
) -> None:
    with writing(old_postgres_url), psycopg.connect(old_postgres_url.replace("+psycopg", "")) as other:
        with waiting(old_postgres_url, "CREATE INDEX CONCURRENTLY", lambda: ms.migrate(old_postgres_url)) as migrated:
            (builder,) = sessions(other, "CREATE INDEX CONCURRENTLY")
            other.execute("SELECT pg_terminate_backend(%s)", (builder,))
            with pytest.raises(ms.BackendUnavailable):
                migrated.result(60)
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('guard_name')"
        assert other.execute(valid).fetchall() == [(False,)]
        other.rollback()
    ms.migrate(old_postgres_url)
    with connected(old_postgres_url) as connection:
        assert connection.exec_driver_sql(valid).scalar() is True
    assert differences(old_postgres_url, declared_postgres_url) == []


@pytest.mark.only_whole
@pytest.mark.postgres
def test_six_processes_migrate_a_database_that_is_in_use(
    old_postgres_url: str, declared_postgres_url: str, crowd: Crowd
) -> None:
    """One builds the index; the others wait without a snapshot, for whose end it would wait."""
    assert crowd.migrate(old_postgres_url) == ["ok"] * 6
    assert differences(old_postgres_url, declared_postgres_url) == []


def test_behind_a_pooler_it_is_built_in_the_migration(pgbouncer: PgBouncer, declared_postgres_url: str) -> None:
    """No session lasts there; an invalid index, which another migration left, is in no one's way."""
    direct = pgbouncer.server.create_database()
    try:
        ms.migrate(direct)
        fill(direct)
        migrations.downgrade(parse_url(direct), OLD)
        with writing(direct), psycopg.connect(direct.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("SET statement_timeout = 200")
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(v0004_find.INDEXES["guard_name"])
        ms.migrate(pgbouncer.url(direct.rpartition("/")[2]))
        assert differences(direct, declared_postgres_url) == []
    finally:
        pgbouncer.server.drop_database(direct)
