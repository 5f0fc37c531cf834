"""What is found below a path: every file once, in order, and a reason for what cannot be listed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from metastore.crawl.files import discover, local
from metastore.crawl.files.discover import walk
from metastore.crawl.files.formats import format_of, is_hidden
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.infer import infer_file
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
        "a.orc": ("orc", None, "a"),
        "a.snappy.avro": ("avro", None, "a.snappy"),
        "a.csv.bz2": ("csv", "bzip2", "a"),
        "a.tsv.zst": ("csv", "zstd", "a"),
        "a.json.xz": ("json", "xz", "a"),
        "a.csv.zip": ("csv", "zip", "a"),
        "a.b.zip": ("zip", "zip", "a.b"),
        "a.parquet.zip": ("zip", "zip", "a.parquet"),
    }
    for name, (kind, compression, stem) in known.items():
        found = format_of(name)
        assert found is not None
        assert (found.name, found.compression, found.stem) == (kind, compression, stem)
    assert all(
        format_of(name) is None for name in ("a", "a.txt", "a.gz", "a.parquet.gz", "csv", ".csv.gz", "a.orc.xz", ".zip")
    )


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
    lake.text("_hidden/h.csv", "x")
    for name in ("one.csv", "two.csv"):
        (lake.root / name).symlink_to(lake.root / "_hidden" / "h.csv")
    (lake.root / "nothing.csv").symlink_to(lake.root / "gone")
    outside = lake.root.parent / "outside"
    outside.mkdir()
    (outside / "o.csv").write_text("x")
    (lake.root / "linked").symlink_to(outside)
    listing = walk([lake.root], follow_links=True)
    assert names(lake.root, listing) == ["one.csv", "real/deep/a.csv", "linked/o.csv"]
    assert [Path(note.path).name for note in listing.notes] == ["again", "up", "file.csv", "two.csv"]
    assert [(Path(f.path).name, f.reason) for f in listing.failures] == [
        ("nothing.csv", "is a symbolic link to nothing")
    ]


def test_links_out_of_the_lake_are_not_followed(lake: Lake) -> None:
    """Who may write to a lake must not choose what is read elsewhere; links inside are fine, also between roots."""
    lake.text("in/a.csv", "x")
    outside = lake.root.parent / "lake-outside"
    outside.mkdir()
    (outside / "o.csv").write_text("x")
    (outside / "back").symlink_to(lake.root / "in")
    (lake.root / "linked").symlink_to(outside)
    (lake.root / "file.csv").symlink_to(outside / "o.csv")
    (lake.root / "via.csv").symlink_to("linked/o.csv")
    (lake.root / "round").symlink_to("linked/back")
    listing = walk([lake.root])
    assert names(lake.root, listing) == ["in/a.csv"]
    assert sorted((Path(f.path).name, f.reason) for f in listing.failures) == [
        (name, f"is a symbolic link that leads out of the given paths, to {to}; --follow-links follows it")
        for name, to in (("file.csv", outside / "o.csv"), ("linked", outside), ("via.csv", outside / "o.csv"))
    ]
    assert [Path(note.path).name for note in listing.notes] == ["round"]
    assert names(lake.root.parent, walk([lake.root, outside])) == [f"{lake.root.name}/in/a.csv", "lake-outside/o.csv"]
    link = lake.root.parent / "link"
    link.symlink_to(lake.root)
    assert len(walk([link], exclude=["linked"]).folders) == 1


def test_links_to_themselves(lake: Lake) -> None:
    lake.text("a/x.csv", "x")
    (lake.root / "a" / "self.csv").symlink_to("self.csv")
    (lake.root / "a" / "there").symlink_to("back")
    (lake.root / "a" / "back").symlink_to("there")
    (lake.root / "a" / "deep").symlink_to(".")
    listing = walk([lake.root])
    assert names(lake.root, listing) == ["a/x.csv"]
    assert [(Path(f.path).name, f.reason) for f in listing.failures] == [
        ("self.csv", "cannot be read: Too many levels of symbolic links")
    ]
    assert [Path(note.path).name for note in listing.notes] == ["deep"]


AS_NOBODY = """
import os, sys
from metastore.crawl.files.discover import walk
os.setgroups([]); os.setgid(65534); os.setuid(65534)
listing = walk(sys.argv[1:])
print([file.name for folder in listing.folders for file in folder.files])
print([(failure.path, failure.reason) for failure in listing.failures])
try:
    walk([sys.argv[1] + "/closed/below"])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not look")
def test_folders_and_files_that_nobody_may_see() -> None:
    """What is closed is a failure; what is in a folder that may be listed but not entered too."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        lake = Lake(Path(place))
        for name in ("closed/x.csv", "listed/x.csv", "open/x.csv"):
            lake.text(name, "x")
        (lake.root / "closed").chmod(0o700)
        (lake.root / "listed").chmod(0o744)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, place], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines() == [
            "['x.csv']",
            str(
                [
                    (f"{place}/closed", "cannot be listed: Permission denied"),
                    (f"{place}/listed/x.csv", "cannot be read: Permission denied"),
                ]
            ),
            f"InvalidArgument {place}/closed/below cannot be looked at: Permission denied",
        ], done.stderr


def test_a_folder_too_deep_to_list_stops_nothing(lake: Lake) -> None:
    lake.text("b/x.csv", "x")
    here = os.open(lake.root, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    listing = walk([lake.root])
    assert names(lake.root, listing) == ["b/x.csv"]
    assert [failure.reason for failure in listing.failures] == ["cannot be listed: File name too long"]
    shutil.rmtree(lake.root)


def test_a_file_that_vanishes_before_it_is_read(lake: Lake) -> None:
    for name in ("x.csv", "x.json.gz", "x.zip", "x.parquet", "x.orc", "x.avro"):
        lake.text(name, "x")
    (folder,) = walk([lake.root]).folders
    shutil.rmtree(lake.root)
    for file in folder.files:
        found = infer_file(folder.path, file.name, file.size)
        assert found == Unreadable(file.name, "is gone: it was there when the folder was listed")


def test_ten_thousand_files(lake: Lake) -> None:
    for n in range(10_000):
        (lake.root / f"{n}.csv").touch()
    began = time.process_time()
    (folder,) = walk([lake.root]).folders
    assert time.process_time() - began < 5
    assert len(folder.files) == 10_000
    assert [file.name for file in folder.files] == sorted(file.name for file in folder.files)


def test_names_are_what_they_are(lake: Lake) -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    odd = [
        " a b ",
        "a=b=c",
        "100%",
        "%41",
        "a+b",
        "#1",
        "?x",
        "[a]",
        "a\\b",
        "a\nb",
        "~",
        "-",
        "日本",
        composed,
        decomposed,
    ]
    for name in odd:
        lake.text(f"{name}/{name}.csv", "a,b\n1,2\n")
    listing = walk([lake.root])
    assert [folder.parts for folder in listing.folders] == [(name,) for name in sorted(odd)]
    assert [file.name for folder in listing.folders for file in folder.files] == [f"{name}.csv" for name in sorted(odd)]
    for folder in listing.folders:
        assert isinstance(infer_file(folder.path, folder.files[0].name, 8), FileFacts)


def test_a_root_as_a_uri(lake: Lake) -> None:
    lake.text("a b/x.csv", "x")
    assert [folder.path for folder in walk([f"file://{lake.root}/a b"]).folders] == [f"{lake.root}/a b"]


@pytest.mark.parametrize(
    ("include", "exclude", "found"),
    [
        ([], [], "a.csv a/b/c.csv a/b/d.json a/x.csv old/x.csv"),
        (["*.csv"], [], "a.csv"),
        (["**/*.csv"], [], "a.csv a/b/c.csv a/x.csv old/x.csv"),
        (["a"], [], "a/b/c.csv a/b/d.json a/x.csv"),
        (["a/**"], [], "a/b/c.csv a/b/d.json a/x.csv"),
        (["a/"], [], "a/b/c.csv a/b/d.json a/x.csv"),
        (["a/*"], [], "a/b/c.csv a/b/d.json a/x.csv"),
        (["a/*.csv", "old"], [], "a/x.csv old/x.csv"),
        (["a/**/*.csv"], [], "a/b/c.csv a/x.csv"),
        (["**"], [], "a.csv a/b/c.csv a/b/d.json a/x.csv old/x.csv"),
        (["**/b/**/c.csv"], [], "a/b/c.csv"),
        (["?.csv", "[!ab]*"], [], "a.csv old/x.csv"),
        (["A"], [], ""),
        ([], ["**/b", "old"], "a.csv a/x.csv"),
        (["a"], ["**/x.csv"], "a/b/c.csv a/b/d.json"),
        ([], ["**"], ""),
    ],
)
def test_patterns(lake: Lake, include: list[str], exclude: list[str], found: str) -> None:
    for name in ("a.csv", "a/x.csv", "a/b/c.csv", "a/b/d.json", "old/x.csv"):
        lake.text(name, "x")
    assert sorted(names(lake.root, walk([lake.root], include=include, exclude=exclude))) == found.split()


def test_patterns_take_either_unicode_form(lake: Lake) -> None:
    lake.text("cafe\u0301/x.csv", "x")
    assert len(walk([lake.root], include=["caf\u00e9"]).folders) == 1
    assert walk([lake.root], exclude=["**/caf\u00e9"]).folders == []


def test_what_is_left_out_is_not_listed(lake: Lake) -> None:
    """A loop and a folder that cannot be listed are not news where nobody wanted to look; files left out are told."""
    lake.text("a/x.csv", "x")
    lake.text("a/y.json", "x")
    lake.text("b/c/x.csv", "x")
    (lake.root / "b" / "c" / "loop").symlink_to(lake.root)
    listing = walk([lake.root], include=["**/*.csv"], exclude=["b/c"])
    assert names(lake.root, listing) == ["a/x.csv"]
    assert (listing.notes, listing.failures, listing.skipped) == ([], [], 0)
    assert listing.left_out == {f"{lake.root}/a", f"{lake.root}/b/c"}


@pytest.mark.parametrize("bad", ["", "/a", "a//b", "../a", "a/./b", "a**", "**.csv", "a[b", "[", "[]", 7])
def test_bad_patterns(lake: Lake, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="an include pattern"):
        walk([lake.root], include=[bad])
    with pytest.raises(InvalidArgument, match="an exclude pattern"):
        walk([lake.root], exclude=["*", bad])


def test_a_single_pattern_is_no_list(lake: Lake) -> None:
    with pytest.raises(InvalidArgument, match="list"):
        walk([lake.root], include="*.csv")


def test_a_name_that_is_not_unicode(lake: Lake) -> None:
    bad = lake.root / os.fsdecode(b"caf\xe9.csv")
    try:
        bad.write_text("x")
    except OSError:
        pytest.skip("the file system takes only valid names")
    (failure,) = walk([lake.root]).failures
    assert failure.path.endswith(r"caf\xe9.csv")
    assert "UTF-8" in failure.reason


def test_a_folder_whose_name_is_not_unicode(lake: Lake) -> None:
    bad = lake.root / os.fsdecode(b"caf\xe9")
    try:
        bad.mkdir()
    except OSError:
        pytest.skip("the file system takes only valid names")
    (bad / "a.csv").write_text("a\n1\n")
    listing = walk([lake.root])
    assert [(f.path, f.reason) for f in listing.failures] == [
        (rf"{lake.root}/caf\xe9", "has a name that is not valid UTF-8; rename it")
    ]
    assert listing.folders == []
    with pytest.raises(InvalidArgument, match=r"/caf\\xe9 has a name that is not valid UTF-8; rename it"):
        walk([bad])


def test_a_pipe_is_not_opened(lake: Lake) -> None:
    os.mkfifo(lake.root / "pipe.csv")
    (lake.root / "link.csv").symlink_to("pipe.csv")
    listing = walk([lake.root, lake.root / "pipe.csv"])
    assert (listing.folders, listing.skipped) == ([], 3)


def test_single_files(lake: Lake) -> None:
    path = lake.text("d/a.csv", "x")
    lake.text("d/b.csv", "x")
    (folder,) = walk([path]).folders
    assert (folder.path, [file.name for file in folder.files], folder.whole) == (str(path.parent), ["a.csv"], False)
    assert walk([lake.text("d/a.txt", "x")]).skipped == 1


def test_a_path_that_is_not_there_is_the_callers_mistake(lake: Lake) -> None:
    with pytest.raises(InvalidArgument, match=r"no folder or file .*missing"):
        walk([lake.root, lake.root / "missing"])


def test_a_walk_says_how_many_folders_it_has_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_TELL", 2)
    for name in "abcd":
        (tmp_path / name).mkdir()
    told: list[int] = []
    walk([tmp_path], tell=told.append)
    assert told == [2, 4]
