"""A backup of a SQLite database, put back; and a database's file that is deleted or replaced under a running store."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore import migrations
from metastore.backends.sqlite import copies
from metastore.backends.sqlite.connect import DRIVER
from metastore.urls import parse_url
from tests.migration.schema import run

pytestmark = pytest.mark.one_in(3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def url_of(file: Path) -> str:
    return f"sqlite:///{file}"


def write(file: Path, *names: str) -> None:
    with ms.open(url_of(file)) as store:
        for name in names:
            store.metalakes.create(name)


def names(file: Path) -> list[str]:
    with ms.open(url_of(file)) as store:
        assert store.verify() == []
        return list(store.metalakes.names())


def left_behind(file: Path, *more: str) -> Path:
    """Write more, and give the database as a process that was killed leaves it: with its log."""
    crashed = file.parent / "crashed"
    crashed.mkdir()
    with ms.open(url_of(file)) as store:
        for name in more:
            store.metalakes.create(name)
        for end in ("", "-wal"):
            shutil.copy(f"{file}{end}", crashed / f"{file.name}{end}")
    return crashed / file.name


def test_a_log_that_was_left_behind_is_not_replayed_over_a_backup(file: Path) -> None:
    write(file, "kept")
    backup = file.with_suffix(".backup")
    ms.back_up(url_of(file), backup)
    crashed = left_behind(file, "later")
    ms.put_back(url_of(crashed), backup)
    assert sorted(one.name for one in crashed.parent.iterdir()) == [crashed.name]
    assert names(crashed) == ["kept"]


def test_a_file_that_is_copied_over_shows_the_later_state(file: Path) -> None:
    """Negative control: why a backup is not put back by hand."""
    write(file, "kept")
    backup = file.with_suffix(".backup")
    ms.back_up(url_of(file), backup)
    crashed = left_behind(file, "later")
    shutil.copy(backup, crashed)
    with ms.open(url_of(crashed)) as store:
        assert "later" in list(store.metalakes.names())


def test_a_backup_is_one_whole_file_while_others_write(file: Path) -> None:
    write(file, "first")
    stop = threading.Event()

    def go_on() -> None:
        with ms.open(url_of(file)) as store:
            n = 0
            while not stop.is_set():
                store.metalakes.create(f"n{n}")
                n += 1

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        backups = [file.with_name(f"{n}.backup") for n in range(5)]
        for backup in backups:
            ms.back_up(url_of(file), backup)
    finally:
        stop.set()
        writer.join()
    assert not [one for one in file.parent.iterdir() if one.name.endswith((".part", "backup-wal", "backup-shm"))]
    sizes = [len(names(backup)) for backup in backups]
    assert sizes == sorted(sizes)
    assert all(backup.stat().st_mode & 0o077 == 0 for backup in backups)


@pytest.mark.parametrize("state", ["damaged", "no database", "missing"])
def test_a_backup_takes_the_place_of_what_cannot_be_read(file: Path, state: str) -> None:
    write(file, "kept")
    backup = file.with_suffix(".backup")
    ms.back_up(url_of(file), backup)
    crashed = left_behind(file, "later")
    if state == "missing":
        crashed.unlink()
    elif state == "damaged":
        crashed.write_bytes(crashed.read_bytes()[:5000])
    else:
        crashed.write_bytes(b"nothing of the kind" * 1000)
    ms.put_back(url_of(crashed), backup)
    assert names(crashed) == ["kept"]


def test_a_backup_is_not_put_back_under_a_program(file: Path) -> None:
    write(file, "kept")
    backup = file.with_suffix(".backup")
    ms.back_up(url_of(file), backup)
    with ms.open(url_of(file)) as store:
        store.metalakes.create("later")
        with pytest.raises(ms.BackendUnavailable, match=r"a program has .* open; end all programs"):
            ms.put_back(url_of(file), backup)
        store.metalakes.create("more")
    assert names(file) == ["kept", "later", "more"]


def newer(backup: Path) -> None:
    run(url_of(backup), "UPDATE info SET compatible_from = 99")


def cut(backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[:-8192])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Path.unlink, "there is no backup"),
        (lambda backup: backup.write_text("x" * 5000), "is not a backup of a metastore"),
        (cut, "damage|malformed"),
        (newer, "is of a newer program"),
    ],
    ids=["missing", "foreign", "cut", "newer"],
)
def test_what_is_no_backup_is_not_put_back(file: Path, change: Callable[[Path], object], why: str) -> None:
    write(file, "kept")
    backup = file.with_suffix(".backup")
    ms.back_up(url_of(file), backup)
    change(backup)
    with pytest.raises(ms.InvalidArgument, match=why):
        ms.put_back(url_of(file), backup)
    assert names(file) == ["kept"]


def test_a_backup_overwrites_nothing(file: Path) -> None:
    write(file, "kept")
    with pytest.raises(ms.InvalidArgument, match="exists already"):
        ms.back_up(url_of(file), file)
    with pytest.raises(ms.BackendUnavailable, match="there is no SQLite database"):
        ms.back_up(url_of(file.with_name("other.db")), file.with_name("new"))
    with pytest.raises(ms.BackendUnavailable, match="cannot copy"):
        ms.back_up(url_of(file), file.with_name("no folder") / "new")


def test_two_backups_into_one_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would replace the file that the first one fills, and the first would call that one its own."""
    write(file, "kept")
    backup, refused = file.with_suffix(".backup"), list[BaseException]()
    problem = copies._problem

    def meanwhile(connection: Any) -> str | None:
        with pytest.raises(ms.BackendUnavailable, match="another process writes") as caught:
            ms.back_up(url_of(file), backup)
        refused.append(caught.value)
        return problem(connection)

    monkeypatch.setattr(copies, "_problem", meanwhile)
    ms.back_up(url_of(file), backup)
    assert len(refused) == 1
    assert names(backup) == ["kept"]


def test_what_a_killed_backup_left_is_not_in_the_way(file: Path) -> None:
    write(file, "kept")
    backup = file.with_suffix(".backup")
    backup.with_name(f"{backup.name}.part").write_bytes(b"SQLite format 3\0 and then it was killed")
    ms.back_up(url_of(file), backup)
    assert names(backup) == ["kept"]
    assert not backup.with_name(f"{backup.name}.part").exists()


@pytest.mark.parametrize(
    ("url", "tool"), [("postgresql://h/d", "pg_dump"), ("memory://", "export"), ("sqlite://", "export")]
)
def test_other_databases_have_their_own_tools(tmp_path: Path, url: str, tool: str) -> None:
    with pytest.raises(ms.InvalidArgument, match=tool):
        ms.back_up(url, tmp_path / "new")


# --- a file that goes away under a running store


def delete(file: Path) -> None:
    for one in list(file.parent.glob(f"{file.name}*")):
        one.unlink()


def replace(file: Path) -> None:
    other = file.with_name("other.db")
    write(other, "foreign")
    other.replace(file)


@pytest.mark.parametrize("change", [delete, replace])
@pytest.mark.parametrize("used", [True, False], ids=["a pooled connection", "a new connection"])
def test_a_file_that_goes_away_is_noticed(file: Path, change: Callable[[Path], None], used: bool) -> None:
    with ms.open(url_of(file)) as store:
        store.metalakes.create("kept")
        if not used:
            store._session.backend.pool._close_idle()  # type: ignore[attr-defined]
        change(file)
        before = file.read_bytes() if file.exists() else None
        copy = file.with_suffix(".copy")
        for call in (
            lambda: store.metalakes.create("lost"),
            lambda: list(store.metalakes.names()),
            lambda: store.backup(copy),
        ):
            with pytest.raises(
                ms.BackendUnavailable, match="was deleted or replaced while it was open; close the store"
            ):
                call()
        assert (file.read_bytes() if file.exists() else None) == before
        assert not copy.exists()


def test_the_database_itself_is_no_backup(file: Path) -> None:
    write(file, "kept")
    with pytest.raises(ms.InvalidArgument, match="is the database itself"):
        ms.put_back(url_of(file), file)
    assert names(file) == ["kept"]


def test_a_copy_of_a_file_that_stays_locked_ends(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, "kept")
    monkeypatch.setattr(copies, "_PATIENCE", 0.3)
    with closing(DRIVER.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ms.BackendUnavailable):
            ms.back_up(url_of(file), file.with_suffix(".backup"))
        other.execute("COMMIT")
    assert not file.with_suffix(".backup").exists()


def test_a_schema_that_is_no_text_is_told(file: Path) -> None:
    """SQLite's message has the damaged text in it, which the driver cannot decode."""
    write(file, "kept")
    good, bad = file.with_suffix(".good"), file.with_suffix(".bad")
    ms.back_up(url_of(file), good)
    bad.write_bytes(good.read_bytes().replace(b"CREATE TRIGGER info", b"CREATE TRIGG\xffR info", 1))
    with pytest.raises(ms.InvalidArgument, match="is not a backup"):
        ms.put_back(url_of(file), bad)
    assert names(file) == ["kept"]
    for call in (lambda: ms.open(url_of(bad)), lambda: ms.back_up(url_of(bad), file.with_suffix(".copy"))):
        with pytest.raises(ms.BackendUnavailable):
            call()
    ms.put_back(url_of(bad), good)
    assert names(bad) == ["kept"]


# --- what must not be given twice


def acquire(store: ms.Store, name: str, owner: str = "any") -> int:
    token = store.leases.acquire(name, owner=owner).token
    assert token is not None
    return token


@pytest.mark.parametrize("older", [False, True], ids=["this format", "an older format"])
def test_tokens_and_ids_that_the_replaced_database_gave_are_not_given_again(file: Path, older: bool) -> None:
    backup = file.with_suffix(".backup")
    with ms.open(url_of(file)) as store:
        kept, held = acquire(store, "kept"), acquire(store, "held")
    if older:
        migrations.downgrade(parse_url(url_of(file)), "0011")
    ms.back_up(url_of(file), backup)
    with ms.open(url_of(file)) as store:
        store.leases.break_("held")
        lost = {"held": acquire(store, "held", "another"), "new": acquire(store, "new")}
        entity = store.metalakes.create("lost")
    ms.put_back(url_of(file), backup)
    with ms.open(url_of(file)) as store:
        for name, token in [("held", held), *lost.items()]:
            with pytest.raises(ms.LeaseLost):
                store.leases.join(name, token)
        assert all(acquire(store, name) > token for name, token in lost.items())
        assert store.leases.join("kept", kept).token == kept
        assert store.metalakes.create("other").id > entity.id
        assert store.verify() == []


def test_a_replaced_database_without_a_readable_last_id_tells_its_tokens(file: Path) -> None:
    backup = file.with_suffix(".backup")
    write(file, "kept")
    ms.back_up(url_of(file), backup)
    with ms.open(url_of(file)) as store:
        token = acquire(store, "lost")
    with closing(DRIVER.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE info SET last_id = 'damaged'")
    ms.put_back(url_of(file), backup)
    with ms.open(url_of(file)) as store:
        assert acquire(store, "lost") > token
