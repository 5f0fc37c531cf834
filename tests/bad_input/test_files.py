"""Files that cannot be a database, cannot be written, or have no room left; the same on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import metastore as ms
from tests.bad_input.conftest import TABLE, prepare
from tests.bad_input.refusal import refused, unchanged
from tests.servers.postgres import PostgresServer

BIG = "x" * 500_000


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes\n" * 1000)
    refused(ms.BackendRefused, lambda: ms.open(f"sqlite:///{path}"), "not a database", "check the path", str(path))
    refused(ms.BackendRefused, lambda: ms.migrate(f"sqlite:///{path}"), "not a database")
    assert path.read_text() == "these are notes\n" * 1000
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    """Its tables stay; ours come beside them, or nothing is done where names collide."""
    from metastore.backends.sqlite.connect import DRIVER

    path = tmp_path / "other.db"
    other = DRIVER.connect(path)
    other.execute("CREATE TABLE entity (theirs TEXT)")
    other.commit()
    other.close()
    refused(ms.BackendUnavailable, lambda: ms.open(f"sqlite:///{path}"), "entity")
    again = DRIVER.connect(path)
    assert [row[0] for row in again.execute("SELECT name FROM sqlite_master")] == ["entity"]
    again.close()


@pytest.mark.parametrize("where", ["", "missing/x.db", "a-file/x.db"])
def test_paths_that_lead_nowhere(tmp_path: Path, where: str) -> None:
    (tmp_path / "a-file").write_text("")
    url = f"sqlite:///{tmp_path / where}"
    refused(ms.BackendUnavailable, lambda: ms.open(url), "unable to open", "check the path")
    refused(ms.BackendUnavailable, lambda: ms.migrate(url), "unable to open")
    assert [p.name for p in tmp_path.iterdir()] == ["a-file"]


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with ms.open(f"sqlite:///{path}") as store:
        prepare(store)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))

    def read() -> None:
        with ms.open(f"sqlite:///{path}") as store:
            store.tables.load(TABLE)

    refused(ms.BackendUnavailable, read, "malformed")


def _tmpfs(folder: Path, size: str) -> Path:
    """Mount a small file system in memory; skip where that is not allowed."""
    folder.mkdir()
    folder.chmod(0o755)
    if os.geteuid() != 0:
        pytest.skip("a file system of its own can only be mounted by root")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    return folder


@pytest.fixture
def write_protected(tmp_path: Path) -> Iterator[ms.Store]:
    """Give a store whose connections refuse to write, wherever the tests run."""
    with ms.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        prepare(store)
        with store._session.backend.pool.connection() as connection:  # type: ignore[attr-defined]
            connection.execute("PRAGMA query_only = ON")
        yield store


def test_a_connection_that_cannot_write(write_protected: ms.Store) -> None:
    store = write_protected
    with unchanged(store):
        assert store.tables.load(TABLE).name == "t"
        refused(ms.BackendRefused, lambda: store.schemas.create("m.c.x"), "readonly")
        refused(ms.BackendRefused, lambda: store.tables.alter(TABLE, ms.SetComment("x")), "readonly")
        refused(ms.BackendRefused, lambda: store.tables.drop(TABLE), "readonly")
        refused(ms.BackendRefused, lambda: store.schemas.create_many("m.c", [{"name": "x"}]), "readonly")
        refused(ms.BackendRefused, lambda: store.run(lambda tx: tx.schemas.create("m.c.x")), "readonly")
        assert list(store.schemas.names("m.c")) == ["s"]


def use_read_only(path: Path) -> list[str]:
    """Read, try to write, read again; return what came of it."""
    found = []
    try:
        with ms.open(f"sqlite:///{path}", deadline=2.0) as store:
            found.append(store.tables.load(TABLE).name)
            for call in (
                lambda: store.schemas.create("m.c.x"),
                lambda: store.tables.alter(TABLE, ms.SetComment("x")),
                lambda: store.tables.drop(TABLE),
            ):
                try:
                    call()
                except ms.MetastoreError as error:
                    found.append(f"{type(error).__name__}: {error}")
            found.append(str(store.tables.load(TABLE).version))
    except ms.MetastoreError as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


def as_nobody(path: Path, use: Callable[[Path], list[str]] = use_read_only) -> list[str]:
    """Do the same as a user who owns nothing, where we are root: permissions mean nothing to root."""
    if os.geteuid() != 0:
        return use(path)
    import metastore.backends.sqlite.backend  # noqa: F401  (what the other user may not be able to read)

    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(theirs, "\n".join(use(path)).encode())
        except BaseException as error:  # noqa: BLE001  (a child of ours must not return into pytest)
            os.write(theirs, repr(error).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        found = pipe.read().split("\n")
    os.waitpid(child, 0)
    return found


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that everybody can reach and write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def seed(path: Path, journal: str = "wal") -> Path:
    with ms.open(f"sqlite:///{path}") as store:
        prepare(store)
        with store._session.backend.pool.connection() as connection:  # type: ignore[attr-defined]
            connection.execute(f"PRAGMA journal_mode = {journal}")
    path.chmod(0o644)  # the store makes it for its owner alone; here others read it too
    return path


def test_a_file_that_may_not_be_written(open_folder: Path) -> None:
    """Reads work, writes are BackendRefused."""
    path = seed(open_folder / "a.db")
    path.chmod(0o444)
    first, *failures, last = as_nobody(path)
    assert (first, last) == ("t", "1")
    assert len(failures) == 3
    for failure in failures:
        assert failure.startswith("BackendRefused: ")
        assert "readonly" in failure


def written_by_another(path: Path) -> subprocess.Popen[str]:
    """Start a process that has the database open, with a change that is in its log only."""
    program = f"""import sys, metastore as ms
with ms.open("sqlite:///{path}") as store:
    store.schemas.create("m.c.logged")
    print("written", flush=True)
    sys.stdin.read()"""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


@pytest.mark.parametrize("mode", [0o444, 0o666], ids=["file too", "folder only"])
def test_a_folder_that_may_not_be_written(open_folder: Path, mode: int) -> None:
    """A file without a log can be read there, and is read again after somebody else has written it."""
    path = seed(open_folder / "a.db")
    path.chmod(mode)
    open_folder.chmod(0o555)
    first, *failures, last = as_nobody(path)
    assert (first, last) == ("t", "1")
    assert len(failures) == 3
    assert all(f.startswith("BackendRefused: ") and "readonly" in f for f in failures)
    assert all(str(path) in f for f in failures), "the message names the file"


def test_a_folder_that_may_not_be_written_while_another_process_writes(open_folder: Path) -> None:
    path = seed(open_folder / "a.db")
    writer = written_by_another(path)
    try:
        open_folder.chmod(0o555)
        first, *failures, last = as_nobody(path)
        assert (first, last) == ("t", "1")
        assert all(f.startswith("BackendRefused: ") for f in failures)
    finally:
        writer.communicate("")


def test_a_log_that_is_left_in_a_folder_that_may_not_be_written(open_folder: Path) -> None:
    """Its changes are committed: to read the file without them would be wrong."""
    path = seed(open_folder / "a.db")
    writer = written_by_another(path)
    writer.kill()
    writer.communicate()
    for name in ("a.db-shm",):
        (open_folder / name).unlink()
    open_folder.chmod(0o555)
    (failure,) = as_nobody(path)
    assert failure.startswith("BackendRefused: ")
    assert "write-ahead log" in failure


def changes_seen(path: Path) -> list[str]:
    """Read, let root write in the meantime, read again."""
    with ms.open(f"sqlite:///{path}", deadline=2.0) as store:
        before = list(store.schemas.names("m.c"))
        (path.parent.parent / f"{path.parent.name}.go").touch()
        while not (path.parent.parent / f"{path.parent.name}.done").exists():
            time.sleep(0.01)
        return [*before, *store.schemas.names("m.c")]


@pytest.mark.skipif(os.geteuid() != 0, reason="root writes where the reader may not")
def test_an_immutable_file_that_changes_all_the_same(open_folder: Path) -> None:
    inner = open_folder / "inner"
    inner.mkdir()
    path = seed(inner / "a.db")
    go, done = open_folder / "inner.go", open_folder / "inner.done"

    def write() -> None:
        while not go.exists():
            time.sleep(0.01)
        seen = subprocess.run(
            [sys.executable, "-c", f"import metastore as ms; ms.open('sqlite:///{path}').schemas.create('m.c.new')"],
            check=False,
        )
        assert seen.returncode == 0
        done.touch()

    thread = threading.Thread(target=write)
    thread.start()
    found = as_nobody(path, changes_seen)
    go.touch()  # also where nobody could open the file: else the thread waits for ever
    thread.join()
    assert found == ["s", "new", "s"]


def test_a_file_that_may_not_be_read(open_folder: Path) -> None:
    path = seed(open_folder / "a.db")
    path.chmod(0o000)
    (failure,) = as_nobody(path)
    assert failure.startswith("BackendUnavailable: ")
    assert "unable to open" in failure
    assert "permissions" in failure


def test_a_file_on_a_read_only_medium(tmp_path: Path) -> None:
    """Without a write-ahead log beside it, and without one to be made."""
    mount = _tmpfs(tmp_path / "medium", "4m")
    try:
        seed(mount / "a.db", "delete")
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True, capture_output=True)
        first, *failures, last = use_read_only(mount / "a.db")
        assert (first, last) == ("t", "1")
        assert len(failures) == 3
        assert all(f.startswith("BackendRefused: ") and "readonly" in f for f in failures)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True)


def test_a_file_with_a_log_on_a_read_only_medium(tmp_path: Path) -> None:
    """SQLite reads it only when it is told that nobody writes."""
    mount = _tmpfs(tmp_path / "medium", "4m")
    try:
        seed(mount / "a.db")
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True, capture_output=True)
        first, *failures, last = use_read_only(mount / "a.db")
        assert (first, last) == ("t", "1")
        assert len(failures) == 3
        assert all(f.startswith("BackendRefused: ") for f in failures)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True)


def test_no_page_left(tmp_path: Path) -> None:
    """SQLITE_FULL, which a full disk raises too: nothing of the commit stays, and small ones go on."""
    with ms.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        prepare(store)
        with store._session.backend.pool.connection() as connection:  # type: ignore[attr-defined]
            ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
            connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        with unchanged(store):
            refused(ms.BackendUnavailable, lambda: store.schemas.create("m.c.x", comment=BIG), "full")
            rows = [{"name": f"x{n}", "comment": BIG} for n in range(3)]
            refused(ms.BackendUnavailable, lambda: store.schemas.create_many("m.c", rows), "full")
            refused(ms.BackendUnavailable, lambda: store.tables.alter(TABLE, ms.SetComment(BIG)), "full")
        store.schemas.create("m.c.small")
        assert store.verify() == []


def test_no_room_for_the_file(tmp_path: Path) -> None:
    """A disk that is full in truth."""
    mount = _tmpfs(tmp_path / "disk", "2m")
    try:
        with ms.open(f"sqlite:///{mount / 'a.db'}", deadline=5.0) as store:
            prepare(store)
            with pytest.raises(ms.BackendUnavailable) as caught:  # noqa: PT012  (the disk is full at some time)
                for n in range(20):
                    store.schemas.create(f"m.c.x{n}", comment=BIG)
            assert "full" in str(caught.value)
            written = [name for name in store.schemas.names("m.c") if name != "s"]
            assert written == [f"x{n}" for n in range(len(written))]
            assert store.verify() == []
            assert len(list(store.changes())) == 6 + len(written)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True)


def test_no_room_on_the_server() -> None:
    """The database lies in a tablespace on a disk that is full; the server's log does not."""
    with PostgresServer() as server:
        mount = _tmpfs(server.folder / "disk", "24m")
        try:
            server.give(server.own(mount / "space"))
            with psycopg.connect(server.dsn(), autocommit=True) as admin:
                admin.execute(f"CREATE TABLESPACE small LOCATION '{mount / 'space'}'")
                admin.execute("CREATE DATABASE full_one TEMPLATE template0 TABLESPACE small")
            url = server.url("full_one")
            ms.migrate(url)
            with ms.open(url) as store:
                prepare(store)
                incompressible = os.urandom(250_000).hex()
                with pytest.raises(ms.BackendUnavailable, match="No space left") as caught:  # noqa: PT012  (the disk is full at some time)
                    for n in range(60):
                        store.schemas.create(f"m.c.x{n}", comment=incompressible[n:])
                assert len(str(caught.value).splitlines()) == 1
                written = list(store.schemas.names("m.c"))
                assert len(written) > 1
                assert len(list(store.changes())) == 6 + len(written) - 1
                assert store.verify() == []
        finally:
            server.halt()
            subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True)


@pytest.mark.parametrize("name", ["", "a\x00b", "\ud800"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    with ms.open("memory://") as store:
        for call in (store.export_to, store.import_from):
            with pytest.raises(ms.InvalidArgument, match="no file can have the name"):
                call(name)
