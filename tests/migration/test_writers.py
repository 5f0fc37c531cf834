"""A program that stays open through a migration which excludes it changes nothing any more, and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

import metastore as ms
from metastore import migrations
from metastore.cli.app import run as cli
from metastore.port.format import SCHEMA_FORMAT
from metastore.urls import parse_url
from tests.migration.newer import NEWER, newer_program
from tests.migration.schema import connected, run

pytestmark = pytest.mark.one_in(3)

TABLE = "m.c.s.t"
REFUSED = rf"older than format {NEWER} .*start version 0\.{NEWER} or later"
X = ms.SetComment("x")


def grown(url: str) -> ms.Store:
    ms.migrate(url)
    store = ms.open(url)
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.schemas.create("m.c.s")
    store.tables.create(TABLE, columns=[ms.Column("id", "long")])
    store.tables.create("m.c.s.dropped")
    store.tables.drop("m.c.s.dropped")
    store.tags.create("m.tag")
    return store


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], scope="module")
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ms.Store]]:
    """Give the store of a program that was left open while a newer one migrated, and the database's URL."""
    folder = tmp_path_factory.mktemp("left")
    if request.param == "sqlite":
        url = f"sqlite:///{folder / 'a.db'}"
    else:
        url = request.getfixturevalue("postgres_databases").create_database()
    with grown(url) as store:
        with newer_program(folder / "newer", compatible_from=NEWER):
            ms.migrate(url, force=True)
        yield url, store
    if request.param != "sqlite":
        request.getfixturevalue("postgres_databases").drop_database(url)


def transact(store: ms.Store) -> None:
    with store.transaction() as t:
        t.tables.alter(TABLE, X)
        t.tables.create("m.c.s.other")


def together(store: ms.Store) -> None:
    """Several calls at once travel together."""
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(store.tables.alter, TABLE, ms.SetProperty(f"k{n}", "v")) for n in range(8)]
    errors = [call.exception() for call in calls]
    assert all(isinstance(error, ms.MigrationNeeded) for error in errors)
    raise errors[0] or AssertionError


CALLS: dict[str, Callable[[ms.Store], object]] = {
    "alter": lambda store: store.tables.alter(TABLE, X),
    "create": lambda store: store.tables.create("m.c.s.new"),
    "create many": lambda store: store.tables.create_many("m.c.s", [{"name": "one"}, {"name": "two"}]),
    "rename": lambda store: store.tables.rename(TABLE, "u"),
    "drop": lambda store: store.tables.drop(TABLE),
    "restore": lambda store: store.tables.restore("m.c.s.dropped"),
    "owned": lambda store: store.statistics.put_many(TABLE, [store.statistics.row("z", {"n": 1})]),
    "relation": lambda store: store.tags.attach(TABLE, "m.tag", kind="table"),
    "transaction": transact,
    "together": together,
    "lease": lambda store: store.leases.acquire("job"),
    "gc": lambda store: store.gc(retention=timedelta(0), keep_versions=1),
    "feed": lambda store: list(store.changes()),
}


def content(url: str) -> list[list[tuple[Any, ...]]]:
    with connected(url) as connection:
        return [
            sorted(map(tuple, connection.exec_driver_sql(f"SELECT * FROM {table}")), key=repr)
            for table in ("guard", "entity", "owned", "relation", "operation", "lease")
        ]


@pytest.mark.parametrize("call", CALLS)
def test_a_program_that_is_too_old_changes_nothing(left: tuple[str, ms.Store], call: str) -> None:
    url, store = left
    before = content(url)
    with pytest.raises(ms.MigrationNeeded, match=REFUSED):
        CALLS[call](store)
    assert content(url) == before


# --- programs before format 12 do not say their format

BEFORE = {
    "a new row": """INSERT INTO operation (operation_id, ordinal, seq, entity_id, version, kind, action, time,
      path_before, path_after, changes, scope_version, in_use, doc, parent_id, name, fold, state)
    SELECT '00000000-0000-7000-8000-000000000001', 0, 1000, entity_id, version + 1, kind, 'alter', time, path_after,
      path_after, '[]', scope_version, in_use, doc, parent_id, name, fold, state
    FROM operation WHERE path_after = 'm.c.s.t'""",
    "an intent that is applied": """UPDATE operation SET action = 'alter', seq = 1000, version = 9, time = 1,
      path_before = 'm', path_after = 'm' WHERE action = 'pending'""",
    "where the past begins": "UPDATE info SET past_from = 1",
    "what gc deleted": "UPDATE info SET collected_seq = 1",
    "which ids gc forgot": "UPDATE info SET forgotten = 1",
}
INTENT = """INSERT INTO operation (operation_id, ordinal, entity_id, kind, action, time, path_before, changes, attempt,
  deadline, format) SELECT '00000000-0000-7000-8000-000000000002', 0, 1, 'metalake', 'pending', 1, 'm', '[]', 0, 1, 1"""


def test_statements_of_programs_before_format_12_are_refused(url: str) -> None:
    """A row without a position needs no format: an intent, also of an older program, is applied by those who may."""
    with grown(url), connected(url) as connection:
        connection.exec_driver_sql(INTENT)
    before = content(url)
    for statement in BEFORE.values():
        with pytest.raises(DBAPIError, match=r"older than format 12 .*start version 0\.12 or later"):
            run(url, statement)
        says = statement.replace("version = 9", "version = 9, writer = 12").replace("info SET", "info SET writer = 12,")
        says = says.replace("INSERT INTO operation (", "INSERT INTO operation (writer, ").replace(
            "SELECT '", "SELECT 12, '"
        )
        with connected(url) as connection:
            connection.exec_driver_sql(says)
            assert connection.exec_driver_sql("SELECT writer FROM info").scalar() is None
            connection.rollback()
    assert content(url) == before


def test_each_revision_that_excludes_programs_stops_them(empty_url: str) -> None:
    """What ``info`` says is what the triggers refuse, from the revision on that made them."""
    ms.migrate(empty_url)
    newest = max(
        getattr(one.module, "OLDEST", 0)
        for one in ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()
    )
    with connected(empty_url) as connection:
        assert connection.exec_driver_sql("SELECT compatible_from FROM info").scalar() == newest
    older, oldest = (f"UPDATE info SET writer = {number}, past_from = past_from" for number in (newest - 1, newest))
    run(empty_url, oldest)
    with pytest.raises(DBAPIError, match=f"older than format {newest} "):
        run(empty_url, older)


def test_going_back_lets_older_programs_write(empty_url: str) -> None:
    with grown(empty_url):
        pass
    migrations.downgrade(parse_url(empty_url), "0011")
    run(empty_url, BEFORE["a new row"], *list(BEFORE.values())[2:])


# --- migrate names who is connected


def test_a_migration_names_the_programs_that_it_would_exclude(
    empty_postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with grown(empty_postgres_url):
        with newer_program(tmp_path / "compatible"):
            migrations.upgrade(parse_url(empty_postgres_url), "head")
            migrations.downgrade(parse_url(empty_postgres_url), "-1")
        with newer_program(tmp_path / "newer", compatible_from=NEWER):
            command = ["--url", empty_postgres_url, "migrate"]
            assert cli(command) == 1
            told = capsys.readouterr().err
            assert f"programs older than format {NEWER} cannot write" in " ".join(told.split())
            assert "1 sessions" not in told
            with connected(empty_postgres_url) as connection:
                assert connection.exec_driver_sql("SELECT format FROM info").scalar() == SCHEMA_FORMAT
                pids = connection.exec_driver_sql(
                    """SELECT pid FROM pg_stat_activity WHERE application_name = 'metastore'
                    AND datname = current_database()"""
                ).scalars()
                assert all(f"metastore (pid {pid}," in " ".join(told.split()) for pid in pids.all())
            assert cli([*command, "--force"]) == 0


def test_a_migration_without_programs_beside_it_asks_nothing(empty_postgres_url: str, tmp_path: Path) -> None:
    grown(empty_postgres_url).close()
    with newer_program(tmp_path / "newer", compatible_from=NEWER):
        ms.migrate(empty_postgres_url)
        ms.migrate(empty_postgres_url)
