"""A database that is older or newer than the program; old and new programs side by side (field case 40)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import metastore as ms
from metastore.port.format import SCHEMA_FORMAT
from tests.concurrency.workers import Job, Team, Turn
from tests.migration.newer import HEAD, NEWER, newer_program
from tests.migration.schema import connected, run

pytestmark = pytest.mark.one_in(3)

TABLE = "lake.cat.s.t"


def seed(url: str) -> None:
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="relational")
        store.schemas.create("lake.cat.s")
        store.tables.create(TABLE, columns=[ms.Column("id", "long")])


def refused(url: str, *words: str) -> None:
    with pytest.raises(ms.MigrationNeeded) as caught:
        ms.open(url)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for word in words:
        assert word in message


@pytest.fixture
def migrated_url(empty_url: str) -> str:
    """Give a database with a schema and some entities."""
    ms.migrate(empty_url)
    seed(empty_url)
    return empty_url


def test_a_postgres_database_without_a_schema(empty_postgres_url: str) -> None:
    refused(empty_postgres_url, "no schema", "run: metastore migrate")


def test_too_new(migrated_url: str) -> None:
    run(migrated_url, "UPDATE info SET format = 99, compatible_from = 99")
    refused(migrated_url, "format 99", f"this one has {SCHEMA_FORMAT}", "upgrade it")


def test_too_new_is_left_as_it_is(migrated_url: str) -> None:
    run(migrated_url, "UPDATE info SET format = 99, compatible_from = 99")
    refused(migrated_url)
    with connected(migrated_url) as connection:
        row = connection.exec_driver_sql("SELECT format, compatible_from FROM info").one()
    assert tuple(row) == (99, 99)


def test_an_unknown_revision(migrated_url: str) -> None:
    """An older program does not touch what a newer one has migrated."""
    run(migrated_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ms.MigrationNeeded, match=r"9999.* newer program .*upgrade this one") as caught:
        ms.migrate(migrated_url)
    assert len(str(caught.value).splitlines()) == 1
    with ms.open(migrated_url) as store:  # its format is ours: it can be used all the same
        store.tables.alter(TABLE, ms.SetComment("x"))


def test_newer_but_compatible(migrated_url: str) -> None:
    run(migrated_url, f"UPDATE info SET format = {NEWER}, compatible_from = {SCHEMA_FORMAT}")
    with ms.open(migrated_url) as store:
        store.tables.alter(TABLE, ms.SetComment("x"))
        assert store.verify() == []


def test_too_old_on_postgres(empty_postgres_url: str) -> None:
    ms.migrate(empty_postgres_url)
    run(empty_postgres_url, "UPDATE info SET format = 0, compatible_from = 0")
    refused(empty_postgres_url, "format 0", f"needs {SCHEMA_FORMAT}", "run: metastore migrate")


def test_a_newer_program_on_an_old_postgres_database(empty_postgres_url: str, tmp_path: Path) -> None:
    ms.migrate(empty_postgres_url)
    seed(empty_postgres_url)
    with newer_program(tmp_path / "newer"):
        refused(empty_postgres_url, f"format {SCHEMA_FORMAT}", f"needs {NEWER}", "run: metastore migrate")
        ms.migrate(empty_postgres_url)
        ms.open(empty_postgres_url).close()


def test_a_newer_program_migrates_an_old_file_by_itself(empty_sqlite_url: str, tmp_path: Path) -> None:
    seed(empty_sqlite_url)
    with newer_program(tmp_path / "newer"), ms.open(empty_sqlite_url) as store:
        assert store.tables.load(TABLE).version == 1
        with connected(empty_sqlite_url) as connection:
            assert connection.exec_driver_sql("SELECT format FROM info").scalar() == NEWER
            assert connection.exec_driver_sql("SELECT note FROM entity").all() == [(None,)] * 4


def test_an_incompatible_migration_keeps_old_programs_out(migrated_url: str, tmp_path: Path) -> None:
    with newer_program(tmp_path / "newer", compatible_from=NEWER):
        ms.migrate(migrated_url)
        ms.open(migrated_url).close()
    refused(migrated_url, f"format {NEWER}", f"this one has {SCHEMA_FORMAT}", "upgrade it")


def test_a_newer_migration_goes_back(migrated_url: str, tmp_path: Path) -> None:
    from metastore import migrations
    from metastore.urls import parse_url

    with newer_program(tmp_path / "newer", compatible_from=NEWER):
        ms.migrate(migrated_url)
        migrations.downgrade(parse_url(migrated_url), HEAD)
    with ms.open(migrated_url) as store:
        store.tables.alter(TABLE, ms.SetComment("x"))
        assert store.verify() == []


# --- field case 40


@pytest.fixture(scope="session")
def team() -> Team:
    """Give the processes that are the old program."""
    return Team()


def set_property(turn: Turn, key: str) -> int:
    """Be the old program: open the database, and write."""
    return turn.store.tables.alter(TABLE, ms.SetProperty(key, "old")).version


class Writer(threading.Thread):
    """The old program at work: one property after the other, until it is told to stop."""

    def __init__(self, store: ms.Store, number: int) -> None:
        super().__init__()
        self.store, self.number = store, number
        self.stop = threading.Event()
        self.begun = threading.Event()
        self.written = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.store.tables.alter(TABLE, ms.SetProperty(f"writer{self.number}", str(self.written)))
                self.written += 1
                self.begun.set()
        except BaseException as error:  # noqa: BLE001  (the test raises it)
            self.error = error
            self.begun.set()


def test_case_40_old_and_new_programs_side_by_side(migrated_url: str, tmp_path: Path, team: Team) -> None:
    """Field case 40: Schema migrations run forwards on a live database with old and new programs side by side.

    Old programs write without a pause while the newer one migrates; then both kinds write, and an
    old one that starts only now works as well.
    """
    with ms.open(migrated_url, principal="old") as old:
        writers = [Writer(old, n) for n in range(2)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.begun.wait(30)
        with newer_program(tmp_path / "newer"):
            ms.migrate(migrated_url)
            before = [writer.written for writer in writers]
            with ms.open(migrated_url, principal="new") as new:
                for n in range(10):
                    new.tables.alter(TABLE, ms.SetProperty("new", str(n)))
                team.run(migrated_url, [Job(set_property, f"late{n}") for n in range(2)])
                for writer in writers:
                    writer.stop.set()
                    writer.join(30)
                table = new.tables.load(TABLE)
                assert new.verify() == []
        team.close()
        assert [writer.error for writer in writers] == [None, None]
        assert all(writer.written > n for writer, n in zip(writers, before, strict=True))
        assert table.version == 1 + sum(writer.written for writer in writers) + 10 + 2
        assert set(table.properties) == {"writer0", "writer1", "new", "late0", "late1"}
