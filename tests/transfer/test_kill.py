"""kill -9 in the middle: what is there is whole, and the same command finishes the rest."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.backends.postgres.restore import PostgresRestorer
from metastore.port.restore import Ending
from tests.concurrency.workers import FORKSERVER
from tests.transfer.world import UNKNOWN, build, difference, numbers, opened, port, rows

pytestmark = pytest.mark.one_in(3)

NewUrl = Callable[[str], str]
TABLES = 4000
END = Ending((), 3, 0, "0000000000abcd")


def bring_in(url: str, file: Path, pipe: Connection, after: float) -> None:
    """Import, and stop for ever once that much of the file is read."""

    def tell(done: float) -> None:
        if done >= after:
            pipe.send(done)
            pipe.recv()

    if "history" in file.name:
        ms.restore(url, file, progress=tell)
    else:
        with ms.open(url, principal="victim") as store:
            store.import_from(file, progress=tell)


def put_out(url: str, file: Path, pipe: Connection, after: float) -> None:
    """Export, and stop for ever once there are that many lines."""

    def tell(lines: int) -> None:
        if lines >= after:
            pipe.send(lines)
            pipe.recv()

    with ms.open(url) as store:
        store.export_to(file, history="history" in file.name, progress=tell)


def killed(work: Callable[..., None], url: str, file: Path, after: float) -> None:
    """Kill a process that works, when it is that far."""
    ours, theirs = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=work, args=(url, file, theirs, after))
    process.start()
    theirs.close()
    assert ours.poll(60)
    assert ours.recv() >= after
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    ours.close()


def large(url: str) -> None:
    """A little of everything, and a schema that takes several chunks."""
    with opened(url) as store:
        build(store)
        store.schemas.create("lake.c.many")
        store.tables.create_many("lake.c.many", [{"name": f"t{n}", "comment": str(n)} for n in range(TABLES)])
        table = store.tables.load("lake.c.many.t17")
        partitions = [store.partitions.row(f"n={n}", {"n": str(n)}, {}) for n in range(2500)]
        store.partitions.put_many(table, partitions)


def problems(url: str) -> list[ms.Violation]:
    with opened(url) as store:
        return store.verify()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('source') / 'source.db'}"
    large(url)
    return url


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_import(new_url: NewUrl, source: str, tmp_path: Path, kind: str) -> None:
    """Without ids: no orphan, no half chunk; then the rest is written, and nothing twice."""
    url, file = new_url(kind), tmp_path / "plain.jsonl"
    with opened(source) as store:
        said = store.export_to(file)
    for after in (0.5, 0.7):
        killed(bring_in, url, file, after)
        assert problems(url) == []
    with opened(url) as store:
        there = len(list(store.changes()))
        assert 1000 < there < said.entities
        done = store.import_from(file)
        assert (done.written + done.left, done.left) == (said.entities + said.owned + said.relations, there)
        assert store.export_to(tmp_path / "again.jsonl").hash == said.hash
    assert problems(url) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_restore(new_url: NewUrl, source: str, tmp_path: Path, kind: str) -> None:
    """With history: nobody can use what is half there, and the same file goes on where it was stopped."""
    url, file = new_url(kind), tmp_path / "history.jsonl"
    with opened(source) as store, opened(url) as before:
        said = store.export_to(file, history=True)
        store.export_to(tmp_path / "history-other.jsonl", history=True)
        for after in (0.5, 0.8):
            killed(bring_in, url, file, after)
            with pytest.raises(ms.BackendUnavailable, match="was not finished"):
                ms.open(url)
            # who had it open sees nothing of it, and cannot write
            assert [list(before.metalakes.list()), list(before.metalakes.dropped())] == [[], []]
            assert not before.tables.exists("lake.c.s.t")
            with pytest.raises(ms.ScopeFrozen):
                before.metalakes.create("mine", deadline=0.3)
        store.metalakes.create("more")
        store.export_to(tmp_path / "other.jsonl", ids=True)
        with pytest.raises(ms.InvalidArgument, match="another file"):
            ms.restore(url, tmp_path / "other.jsonl")
        store.metalakes.purge("more")
        read: list[float] = []
        done = ms.restore(url, file, progress=read.append)
        assert (done.restored, done.hash) == (True, said.hash)
        with pytest.raises(ms.InvalidArgument, match="empty database"):
            ms.restore(url, file)
        before.metalakes.create("mine")
        assert before.metalakes.purge("mine")
    with opened(url) as restored:
        assert restored.verify() == []
        assert restored.export_to(tmp_path / "again.jsonl", history=True).hash == said.hash


@pytest.mark.only_whole
def test_export_goes_on(source: str, tmp_path: Path) -> None:
    """What a killed export has begun is refused; the same command goes on with it, as if it was never stopped."""
    for name, history in (("plain.jsonl", False), ("history.jsonl", True)):
        file, whole = tmp_path / name, tmp_path / f"whole-{name}"
        half = begun(file)
        with opened(source) as store:
            said = store.export_to(whole, history=history)
            for after in (2000, 5000, 12000)[: 3 if history else 1]:
                killed(put_out, source, file, after)
                with pytest.raises(ms.InvalidArgument, match="not whole"):
                    ms.open("memory://").import_from(half)
                assert not file.exists()
            half.write_bytes(half.read_bytes()[:-7])  # in the middle of a line
            kept = half.read_bytes().count(b"\n")
            done = store.export_to(file, history=history)
        assert (done.kept, done.restarted, done.hash, done.checksum) == (kept, None, said.hash, said.checksum)
        assert file.read_bytes().splitlines()[1:-1] == whole.read_bytes().splitlines()[1:-1]
        assert not half.exists()


def cut(store: ms.Store, file: Path, lines: int) -> int:
    """Leave what an export has begun, and a whole one from before beside it."""
    store.export_to(file)
    begun(file).write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:lines]))
    return lines


def begun(file: Path) -> Path:
    return file.with_name(f"{file.name}.partial")


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_export_begins_again(new_url: NewUrl, tmp_path: Path, every: int) -> None:
    """Where going on would mix two instants, or two exports, it says so and begins again."""
    file = tmp_path / "e.jsonl"
    with opened(new_url("postgres")) as store:
        build(store)
        size = store.export_to(tmp_path / "whole.jsonl").lines
        for lines in range(0, size, every):  # wherever it was stopped
            cut(store, file, lines)
            done = store.export_to(file)
            assert (done.kept, done.restarted, done.lines) == (lines, None, size)
        cut(store, file, 9)
        store.tables.alter("lake.c.s.t", ms.SetComment("meanwhile"))
        done = store.export_to(file)
        assert (done.kept, done.restarted) == (0, "the database has changed since, or was changing then")
        cut(store, file, 9)
        done = store.export_to(file, ids=True)
        assert done.kept == 0
        assert "other options" in (done.restarted or "")
        cut(store, file, 9)
        begun(file).write_bytes(begun(file).read_bytes().replace(b"tester", b"Tester"))
        done = store.export_to(file)
        assert "differs from the present one" in (done.restarted or "")
        assert done.hash == store.export_to(tmp_path / "whole.jsonl").hash
        file.write_bytes(b"something else\n")
        with pytest.raises(ms.InvalidArgument, match="choose another"):
            store.export_to(file)
        assert file.read_bytes() == b"something else\n"
        with opened(new_url("sqlite")) as other:
            other.import_from(tmp_path / "whole.jsonl")
            assert difference(store, other)  # ids and history stay behind


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_restores_at_once(new_url: NewUrl, kind: str) -> None:
    """Each step is done by one of them only; what comes late changes nothing."""
    with opened(new_url(kind)) as one:
        first, second = port(one).restorer(), port(one).restorer()
        assert [r.begin("token", 5, 5) for r in (first, second)] == [0, 0]
        owned = [(9, "k", "x", 1, 1, UNKNOWN, "a", 1, "a", 1)]
        first.write("token", 0, 7, {"owned": owned})
        with pytest.raises(ms.InvalidArgument):
            second.write("token", 0, 7, {"owned": owned})
        with pytest.raises(ms.InvalidArgument, match="another process"):
            second.finish("token", 0, END)
        assert second.begin("token", 5, 5) == 7
        second.finish("token", 7, END)
        with pytest.raises(ms.InvalidArgument):
            first.finish("token", 7, END)
        assert len(rows(one)["owned"]) == 1
        assert numbers(one) == [5, 5, (3,)]


def test_two_exports_into_one_file(source: str, tmp_path: Path) -> None:
    """The second would write over the lines of the first, and then neither is whole."""
    file, refused = tmp_path / "plain.jsonl", list[ms.MetastoreError]()

    def meanwhile(lines: int) -> None:
        with opened(source) as other, pytest.raises(ms.BackendUnavailable, match="another process writes") as caught:
            other.export_to(file)
        refused.append(caught.value)

    with opened(source) as store:
        said = store.export_to(file, progress=meanwhile)
        assert refused
        assert store.export_to(tmp_path / "again.jsonl").hash == said.hash
    with ms.open("memory://two-exports") as store:
        assert store.import_from(file).hash == said.hash


def test_the_slower_of_two_imports_of_one_file_says_so(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It found the rows of the other one, and said that the file was damaged."""
    with ms.open("memory://") as source:
        source.metalakes.create("lake")
        file = io.BytesIO()
        source.export_to(file, history=True)
    write = PostgresRestorer.write
    with ms.open(postgres_url) as slow, ms.open(postgres_url) as quick:

        def overtaken(*args: Any) -> None:
            monkeypatch.setattr(PostgresRestorer, "write", write)
            assert quick.import_from(io.BytesIO(file.getvalue())).restored
            write(*args)

        monkeypatch.setattr(PostgresRestorer, "write", overtaken)
        with pytest.raises(ms.InvalidArgument, match="another process imports the same file"):
            slow.import_from(io.BytesIO(file.getvalue()))
        assert slow.metalakes.load("lake").path == "lake"
