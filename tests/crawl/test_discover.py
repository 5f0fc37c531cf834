"""What is found below a path: every file once, in order, and a reason for what cannot be listed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metastore.crawl import discover
from metastore.crawl.discover import walk
from metastore.crawl.formats import format_of, is_hidden
from metastore.errors import InvalidArgument
from tests.crawl.conftest import Lake


def names(root: Path, listing: discover.Listing) -> list[str]:
    return [str(Path(f.path, file.name).relative_to(root)) for f in listing.folders for file in f.files]


def test_formats_are_told_by_endings() -> None:
    known = {
        "a.parquet": ("parquet", None, "a"),
        "part-0.snappy.parquet": ("parquet", None, "part-0.snappy"),
        "A.CSV": ("csv", None, "A"),
        "a.b.csv.gz": ("csv", "gzip", "a.b"),
        "a.tsv": ("csv", None, "a"),
        "a.jsonl": ("json", None, "a"),
        "a.ndjson.GZ": ("json", "gzip", "a"),
    }
    for name, (kind, compression, stem) in known.items():
        found = format_of(name)
        assert found is not None
        assert (found.name, found.compression, found.stem) == (kind, compression, stem)
    assert all(format_of(name) is None for name in ("a", "a.txt", "a.gz", "a.parquet.gz", "csv", "a.csv.zip"))


def test_what_spark_hides_is_hidden() -> None:
    hidden = ("_SUCCESS", ".a.csv.crc", "_temporary", "_delta_log", "_metadata", ".hidden", "a.csv._COPYING_")
    assert all(map(is_hidden, hidden))
    assert not any(map(is_hidden, ("_a=1", "a", "a_b", "a._b")))


def test_walk_finds_each_file_once_in_order(lake: Lake) -> None:
    for name in ("b/z.csv", "b/a b=1%2F/Ünïcode.json", "a.parquet", "_delta_log/0.json", "b/_SUCCESS", "x.txt", "b/.c"):
        lake.text(name, "x")
    listing = walk([lake.root, f"{lake.root}/", lake.root / "b" / ".."])
    assert names(lake.root, listing) == ["a.parquet", "b/z.csv", "b/a b=1%2F/Ünïcode.json"]
    assert listing.skipped == 1
    assert not listing.failures
    assert not listing.notes


def test_links(lake: Lake) -> None:
    lake.text("real/deep/a.csv", "x")
    (lake.root / "real" / "deep" / "up").symlink_to(lake.root)
    (lake.root / "again").symlink_to(lake.root / "real")
    (lake.root / "file.csv").symlink_to(lake.root / "real" / "deep" / "a.csv")
    (lake.root / "nothing.csv").symlink_to(lake.root / "gone")
    outside = lake.root.parent / "outside"
    outside.mkdir()
    (outside / "o.csv").write_text("x")
    (lake.root / "linked").symlink_to(outside)
    listing = walk([lake.root])
    assert names(lake.root, listing) == ["file.csv", "real/deep/a.csv", "linked/o.csv"]
    assert [Path(note.path).name for note in listing.notes] == ["again", "up"]
    assert [(Path(f.path).name, f.reason) for f in listing.failures] == [
        ("nothing.csv", "is a symbolic link to nothing")
    ]


def test_a_folder_that_cannot_be_listed_stops_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.text("a/x.csv", "x")
    lake.text("b/x.csv", "x")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    listing = walk([lake.root])
    assert names(lake.root, listing) == ["b/x.csv"]
    assert [failure.reason for failure in listing.failures] == ["cannot be listed: Permission denied"]


def test_a_name_that_is_not_unicode(lake: Lake) -> None:
    bad = lake.root / os.fsdecode(b"caf\xe9.csv")
    try:
        bad.write_text("x")
    except OSError:
        pytest.skip("the file system takes only valid names")
    (failure,) = walk([lake.root]).failures
    assert failure.path.endswith(r"caf\xe9.csv")
    assert "UTF-8" in failure.reason


def test_a_pipe_is_not_opened(lake: Lake) -> None:
    os.mkfifo(lake.root / "pipe.csv")
    listing = walk([lake.root])
    assert (listing.folders, listing.skipped) == ([], 1)


def test_single_files(lake: Lake) -> None:
    path = lake.text("d/a.csv", "x")
    lake.text("d/b.csv", "x")
    (folder,) = walk([path]).folders
    assert (folder.path, [file.name for file in folder.files], folder.whole) == (str(path.parent), ["a.csv"], False)
    assert walk([lake.text("d/a.txt", "x")]).skipped == 1


def test_a_path_that_is_not_there_is_the_callers_mistake(lake: Lake) -> None:
    with pytest.raises(InvalidArgument, match=r"no folder or file .*missing"):
        walk([lake.root, lake.root / "missing"])
