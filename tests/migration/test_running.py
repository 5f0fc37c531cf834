"""Upgrade, downgrade, again, and by many processes at once; with data, on both databases."""

from __future__ import annotations

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

import metastore as ms
from metastore import migrations
from metastore.backends.sqlite.connect import DRIVER
from metastore.cli.app import run as cli
from metastore.clock import SYSTEM
from metastore.database import pending_revisions
from metastore.migrations.sessions import MIGRATOR
from metastore.port.format import SCHEMA_FORMAT
from metastore.urls import parse_url
from tests.contract.ground import dump, prepare
from tests.migration.processes import Crowd
from tests.migration.schema import catalog, connected, differences, run
from tests.servers.process import wait_until


def fill(url: str) -> None:
    """Write some of everything through the API."""
    with ms.open(url, principal="filler") as store:
        prepare(store)
        store.tables.create("m.c.one.wide", columns=[ms.Column("id", "long"), ms.Column("tags", "list<string>")])
        store.filesets.create("m.c.one.files", locations={"a": "s3://bucket/a"})
        store.tables.alter("m.c.one.wide", ms.SetComment("ünïcode \x00 too"), ms.AddColumn("more", "int"))
        store.schemas.rename("m.c.two", "three")
        assert store.verify() == []


def epoch(url: str) -> str:
    with connected(url) as connection:
        return str(connection.exec_driver_sql("SELECT epoch FROM info").scalar())


@pytest.mark.only_whole
def test_upgrade_fill_downgrade_upgrade(empty_url: str, declared: str) -> None:
    ms.migrate(empty_url)
    fill(empty_url)
    before = epoch(empty_url)
    migrations.downgrade(parse_url(empty_url), "base")
    assert catalog(empty_url) == set()
    ms.migrate(empty_url)
    assert differences(empty_url, declared) == []
    assert epoch(empty_url) != before  # positions of the feed that was removed mean nothing here
    fill(empty_url)


def test_a_second_upgrade_changes_nothing(empty_url: str) -> None:
    ms.migrate(empty_url)
    fill(empty_url)
    with ms.open(empty_url) as store:
        rows, schema, was = dump(store._session.backend), catalog(empty_url), epoch(empty_url)
        position = [change.position for change in store.changes()][-1]
        ms.migrate(empty_url)
        ms.migrate(empty_url)
        assert (dump(store._session.backend), catalog(empty_url), epoch(empty_url)) == (rows, schema, was)
        assert list(store.changes(after=position)) == []


def test_a_downgrade_on_an_empty_database_does_nothing(empty_url: str) -> None:
    migrations.downgrade(parse_url(empty_url), "base")
    assert catalog(empty_url) == set()


@pytest.mark.only_whole
def test_six_processes_migrate_at_once(empty_url: str, declared: str, crowd: Crowd) -> None:
    assert crowd.migrate(empty_url) == ["ok"] * 6
    assert differences(empty_url, declared) == []
    with connected(empty_url) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM info").scalar() == 1
        assert connection.exec_driver_sql("SELECT count(*) FROM alembic_version").scalar() == 1
    with ms.open(empty_url) as store:
        assert list(store.metalakes.names()) == ["lake"]
        assert store.verify() == []


def test_the_embedded_default_migrates_itself(empty_sqlite_url: str, declared_sqlite_url: str) -> None:
    fill(empty_sqlite_url)
    assert differences(empty_sqlite_url, declared_sqlite_url) == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize("attempt", range(3))
def test_six_processes_open_a_new_file_at_once(tmp_path: Path, crowd: Crowd, attempt: int) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert crowd.open(url) == ["ok"] * 6
    with ms.open(url) as store:
        assert list(store.metalakes.names()) == ["lake"]
        assert len(list(store.changes())) == 1


def test_a_migration_that_fails_leaves_nothing(empty_url: str) -> None:
    """What is in the way of the last table keeps the first ones out too: all of it is one transaction."""
    run(empty_url, "CREATE TABLE info (anything integer)")
    before = catalog(empty_url)
    with pytest.raises(ms.BackendUnavailable, match="info"):
        ms.migrate(empty_url)
    assert catalog(empty_url) == before
    run(empty_url, "DROP TABLE info")
    ms.migrate(empty_url)
    fill(empty_url)


def test_migrating_keeps_the_deadline_of_the_store(tmp_path: Path) -> None:
    """The connection that migrated goes back to the pool: it waits for a lock as long as the store does, not longer."""
    with ms.open(f"sqlite:///{tmp_path / 'new.db'}", deadline=1.0) as store:
        pool = store._session.backend.pool  # type: ignore[attr-defined]
        with pool.connection() as connection:
            assert connection.execute("PRAGMA busy_timeout").fetchone() == (1000,)


def test_one_sqlite_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrating beside an open store uses the store's SQLite: a second one undoes the first one's file locks."""
    if DRIVER is sqlite3:
        pytest.skip("pysqlite3 is not installed: there is only one SQLite")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("Python's own SQLite was used")

    url = f"sqlite:///{tmp_path / 'a.db'}"
    with ms.open(url):
        monkeypatch.setattr("sqlite3.connect", forbidden)
        monkeypatch.setattr("sqlite3.dbapi2.connect", forbidden)
        ms.migrate(url)


@pytest.mark.parametrize("name", ["100%.db", "50%25.db", "a b c.db", "%s%(x)s.db", "ünï 'quoted' \"too\".db"])
def test_names_of_files(tmp_path: Path, name: str) -> None:
    """A SQLAlchemy URL is percent-decoded; every name works once it is encoded."""
    from sqlalchemy.engine import URL

    folder = tmp_path / "a folder with 5% more"
    folder.mkdir()
    url = URL.create("sqlite", database=str(folder / name)).render_as_string()
    ms.migrate(url)
    fill(url)
    assert (folder / name).is_file()


@pytest.mark.parametrize("name", ["site packages", "100%", "%(here)s", "a:b;c,d"])
def test_installed_below_a_strange_folder(
    tmp_path: Path, empty_url: str, declared: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Alembic reads its paths from a configuration, where some characters mean something."""
    installed = tmp_path / name / "migrations"
    shutil.copytree(Path(migrations.__file__).parent.resolve(), installed)
    monkeypatch.setattr(migrations, "__file__", str(installed / "__init__.py"))
    ms.migrate(empty_url)
    assert differences(empty_url, declared) == []


def test_a_migration_waits_for_a_quiet_moment_and_says_who_is_in_the_way(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that keeps a table: others go on between the tries, and the message does not blame the URL."""
    migrations.upgrade(parse_url(empty_postgres_url), "0009")
    tries = list[int]()
    monkeypatch.setattr(migrations, "_PATIENCE", 0.0)
    with connected(empty_postgres_url) as writer:
        writer.exec_driver_sql("BEGIN")
        writer.exec_driver_sql("SELECT count(*) FROM operation")
        with pytest.raises(
            ms.BackendUnavailable, match=r"other sessions kept its tables .*end long transactions"
        ) as told:
            ms.migrate(empty_postgres_url)
        assert "credentials" not in str(told.value)

        def end(_: float) -> None:
            tries.append(1)
            if len(tries) == 2:
                writer.exec_driver_sql("COMMIT")

        monkeypatch.setattr(migrations, "_PATIENCE", 60.0)
        clock = SimpleNamespace(monotonic=SYSTEM.monotonic, uniform=SYSTEM.uniform, sleep=end)
        monkeypatch.setattr(migrations, "SYSTEM", clock)
        ms.migrate(empty_postgres_url)
    assert len(tries) >= 2
    fill(empty_postgres_url)


@pytest.mark.parametrize("by", ["a service", "PGDATABASE"])
def test_libpq_finds_one_database_for_migrate_and_open(
    empty_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """What the URL leaves out comes from libpq's files and variables, for the migration as for the store."""
    there = parse_url(empty_postgres_url)
    if by == "a service":
        service = f"[there]\nhost={there.host}\nport={there.port}\nuser={there.username}\ndbname={there.database}\n"
        (tmp_path / "services").write_text(service)
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        url = "postgresql:///?service=there"
    else:
        monkeypatch.setenv("PGDATABASE", str(there.database))
        url = f"postgresql://{there.username}@{there.host}:{there.port}/"
    ms.migrate(url)
    with ms.open(url) as store, ms.open(empty_postgres_url) as same:
        store.metalakes.create("m")
        assert same.metalakes.load("m").path == "m"


_BUILDS = "0003"
"""The next revision builds an index before the migration."""


@pytest.mark.parametrize(
    ("begin", "end", "event"),
    [
        (f"SELECT pg_advisory_lock({migrations._LOCK})", f"SELECT pg_advisory_unlock({migrations._LOCK})", "advisory"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT format FROM info", "COMMIT", "virtualxid"),
    ],
    ids=["for another migrator", "for an old snapshot"],
)
def test_no_time_out_of_a_role_ends_a_migration(empty_postgres_url: str, begin: str, end: str, event: str) -> None:
    """It waits for longer than the statements, locks and transactions of the role may take."""
    waits = f"""SELECT clock_timestamp() - query_start > interval '0.3 s' FROM pg_stat_activity
      WHERE wait_event = '{event}' AND application_name = '{MIGRATOR}' AND datname = current_database()"""
    migrations.upgrade(parse_url(empty_postgres_url), _BUILDS)
    dsn = empty_postgres_url.replace("+psycopg", "")
    with psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        known = ("statement_timeout", "lock_timeout", "transaction_timeout")
        there = other.execute("SELECT name FROM pg_settings WHERE name = ANY(%s)", [list(known)]).fetchall()
        options = "%20".join(f"-c%20{name}%3D150" for (name,) in there)
        other.execute(begin)
        migrated = pool.submit(ms.migrate, f"{empty_postgres_url}?options={options}")

        def waited() -> bool:
            other.execute("SELECT pg_stat_clear_snapshot()")
            return migrated.done() or (True,) in other.execute(waits).fetchall()

        try:
            assert wait_until(waited, 30)
        finally:
            other.execute(end)
        migrated.result()
    fill(empty_postgres_url)


def test_a_time_out_is_told_as_one(empty_postgres_url: str) -> None:
    """What cannot be kept from a time-out says so, and does not blame the credentials."""
    engine = migrations._engine(parse_url(empty_postgres_url))
    stopped = "SET statement_timeout = 10; SELECT pg_sleep(60)"
    with (
        pytest.raises(
            ms.BackendUnavailable, match=r"time-out of the role.*statement timeout.*statement_timeout=0"
        ) as told,
        migrations._told("here"),
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        connection.exec_driver_sql(stopped)
    engine.dispose()
    assert "credentials" not in str(told.value)


def test_what_is_to_be_done_is_shown_and_not_done(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--url", empty_url, "migrate"]
    assert cli([*command, "--check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["pending"][0]["revision"] == "0001"
    assert cli([*command, "--to", "0009"]) == 0
    before = catalog(empty_url)
    capsys.readouterr()
    assert cli([*command, "--dry-run"]) == 0
    assert "Keys of secret properties" in capsys.readouterr().out
    assert cli([*command, "--check"]) == 1
    assert catalog(empty_url) == before
    assert cli([*command, "--to", "4711"]) == 1
    assert "there is no revision" in capsys.readouterr().err
    assert cli(command) == 0
    assert cli([*command, "--check"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_what_is_to_be_done_is_shown_without_a_file(tmp_path: Path) -> None:
    """A migration makes a file for its owner alone, as ``open`` does."""
    file = tmp_path / "new.db"
    command = ["--url", f"sqlite:///{file}", "migrate"]
    assert cli([*command, "--check"]) == 1
    assert cli([*command, "--dry-run"]) == 0
    assert not file.exists()
    assert cli(command) == 0
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_to_be_done_is_shown_beside_others(empty_postgres_url: str) -> None:
    """It waits for no table: else writers would wait behind it."""
    ms.migrate(empty_postgres_url, to="0009")
    with connected(empty_postgres_url) as other:
        other.exec_driver_sql("BEGIN")
        other.exec_driver_sql("LOCK TABLE guard, operation IN ACCESS EXCLUSIVE MODE")
        assert [name for name, _ in pending_revisions(empty_postgres_url)] == ["0010", "0011", "0012"]
        other.exec_driver_sql("ROLLBACK")


def test_the_version_tells_the_format() -> None:
    assert ms.__version__.split(".")[1] == str(SCHEMA_FORMAT)
