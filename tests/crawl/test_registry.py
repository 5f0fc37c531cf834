"""What a crawl knows of the last one: unchanged files are not read, tables are followed, those without files marked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.crawl import tasks as stages
from metastore.crawl.files.discover import File
from metastore.crawl.policies import Policies
from metastore.crawl.read import infer
from metastore.crawl.read.signatures import prefix_of, row_name, signature_of
from metastore.crawl.write.commit import CatalogState
from metastore.errors import InvalidArgument
from metastore.names import clean_name
from tests.crawl.conftest import Crawler, Lake, paths_of

MONTH = {"x": [1, 2], "y": ["a", None]}


@pytest.fixture
def full(crawler: Crawler) -> Crawler:
    """Give a crawler that has crawled a folder, a partitioned one, and files that are tables of their own."""
    lake = crawler.lake
    lake.parquet("s/one/a.parquet", MONTH)
    for month in (1, 2):
        lake.parquet(f"s/parts/month={month}/a.parquet", MONTH)
    lake.text("s/many/a.csv", "a\n1\n")
    lake.text("s/many/b.csv", "b\n1\n")
    crawler.crawl()
    return crawler


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of files that are looked into."""
    found: list[str] = []
    infer_file = infer.infer_file

    def noted(location: str, name: str, *rest: Any) -> Any:
        found.append(name)
        return infer_file(location, name, *rest)

    monkeypatch.setattr(stages, "infer_file", noted)
    return found


def touch(path: Path) -> None:
    """Give a file another time."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))


# --- incremental


def test_unchanged_files_are_not_read_and_nothing_is_written(full: Crawler, read: list[str]) -> None:
    writes = full.writes()
    report = full.crawl()
    assert (report.unchanged, report.tables, report.files, report.partitions) == (4, 4, 5, 2)
    assert (report.rows, report.attempts, report.run) == (8, 0, None)
    assert read == []
    assert full.writes() == writes


def test_only_what_changed_is_read(full: Crawler, read: list[str]) -> None:
    touch(full.lake.root / "s/many/b.csv")
    touch(full.lake.root / "s/parts/month=2/a.parquet")
    writes = full.writes()
    report = full.crawl()
    assert sorted(read) == ["b.csv", "month=1/a.parquet", "month=2/a.parquet"]
    assert (report.unchanged, report.altered) == (4, 0)
    assert full.written(writes) == {"source": 2, "statistic": 2}  # the signatures
    read.clear()
    full.crawl()
    assert read == []


def test_a_file_that_changes_and_keeps_its_size_and_time_is_not_seen(full: Crawler, read: list[str]) -> None:
    path = full.lake.root / "s/many/a.csv"
    stat = path.stat()
    path.write_text("c\n1\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    full.crawl()
    assert read == []  # said in the docs: size and time decide


def test_a_new_file_beside_many_is_read_alone(full: Crawler, read: list[str]) -> None:
    full.lake.text("s/many/c.csv", "c\n1\n")
    report = full.crawl()
    assert read == ["c.csv"]
    assert (report.created, report.unchanged) == (1, 4)
    assert "s.many.c" in paths_of(report)


def test_what_could_not_be_read_is_tried_again_each_time(full: Crawler, read: list[str]) -> None:
    full.lake.text("s/bad/a.parquet", "no")
    full.lake.text("s/many/c.csv", b"\x00")
    full.lake.text("s/one/b.parquet", "no")
    assert len(full.crawl().failures) == 3
    for _ in range(2):
        read.clear()
        writes = full.writes()
        report = full.crawl()
        assert sorted(read) == ["a.parquet", "a.parquet", "b.parquet", "c.csv"]
        assert (len(report.failures), report.attempts, report.run) == (3, 0, None)
        assert full.writes() == writes
    full.lake.parquet("s/bad/a.parquet", MONTH)
    report = full.crawl()
    assert (report.created, len(report.failures)) == (1, 2)


def test_policies_are_not_masked_by_signatures(full: Crawler, read: list[str]) -> None:
    full.lake.parquet("s/one/b.parquet", {"x": [1.5], "y": ["a"]})
    report = full.crawl()
    assert report.altered == 1
    assert full.columns("s.one")["x"] == "long"
    assert [note.text for note in report.notes] == ["the column 'x' is double in the files now; long is kept"]
    assert "! x double in the files (long is kept)" in next(r for r in report.results if r.changes).changes
    read.clear()
    assert full.crawl().notes == report.notes  # told again, from the row
    assert read == []
    failed = full.crawl(on_type_change="fail")
    assert [f.reason for f in failed.failures] == ["the column 'x' is double in the files now, long in the catalog"]
    assert full.columns("s.one")["x"] == "long"
    widened = full.crawl(on_type_change="widen")
    assert next(r for r in widened.results if r.changes).changes == ("~ x long -> double",)
    assert full.columns("s.one")["x"] == "double"
    read.clear()
    again = full.crawl()
    assert (again.unchanged, again.notes, read) == (4, (), [])


def test_notes_are_not_repeated_when_people_have_acted(full: Crawler) -> None:
    full.lake.parquet("s/one/a.parquet", {"x": [1]})
    assert [n.text for n in full.crawl().notes] == ["the column 'y' is in no file any more; it is kept"]
    full.store.tables.alter("lake.main.s.one", ms.DropColumn("y"))
    assert full.crawl().notes == ()
    assert full.crawl().attempts == 0


# --- a data set is its location


@pytest.mark.parametrize("to", ["renamed", "lake.main.deep.er.t", "lake.other.s.t"])
def test_a_table_that_people_renamed_or_moved_is_followed(full: Crawler, to: str) -> None:
    full.store.catalogs.create("lake.other", type="relational")
    for schema in ("lake.main.deep", "lake.main.deep.er", "lake.other.s"):
        full.store.schemas.create(schema)
    moved = {path: full.store.tables.load(f"lake.main.s.{path}").id for path in ("one", "parts", "many.a")}
    for number, path in enumerate(moved):
        full.store.tables.rename(f"lake.main.s.{path}", f"{to}{number}")
    report = full.crawl()
    assert (report.unchanged, report.created, report.failures) == (4, 0, ())
    for path in ("one/b", "parts/month=3/a"):
        full.lake.parquet(f"s/{path}.parquet", MONTH)
    full.lake.text("s/many/a.csv", "a,z\n1,2\n")
    report = full.crawl()
    assert (report.altered, report.unchanged, report.created, report.failures) == (3, 1, 0, ())
    by_id = {t.id: t for t in (full.store.tables.load(r.path) for r in report.results)}
    assert set(moved.values()) <= set(by_id)
    assert [c.name for c in by_id[moved["many.a"]].columns] == ["a", "z"]
    assert len(list(full.store.partitions.list(by_id[moved["parts"]]))) == 3
    assert not full.store.tables.exists("lake.main.s.one")
    assert list(full.store.verify()) == []


def test_a_table_that_was_dropped_is_made_anew(full: Crawler, read: list[str]) -> None:
    old = full.table("s.one").id
    full.store.tables.drop("lake.main.s.one")
    full.store.tables.drop("lake.main.s.many.a")
    report = full.crawl()
    assert (report.created, report.unchanged) == (2, 2)
    assert sorted(read) == ["a.csv", "a.parquet"]
    assert full.table("s.one").id != old
    assert full.crawl().unchanged == 4


def test_a_row_that_came_after_it_was_looked_for_is_followed(full: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    full.store.tables.rename("lake.main.s.one", "theirs")
    touch(full.lake.root / "s/one/a.parquet")
    find, blind = full.catalog.find, [True, True]

    def found_nothing(wanted: Any, *rest: Any) -> list[CatalogState]:
        return [CatalogState()] * len(wanted) if blind and blind.pop() else find(wanted, *rest)

    monkeypatch.setattr(full.catalog, "find", found_nothing)
    report = full.crawl()
    assert (report.unchanged, report.created, report.failures, blind) == (4, 0, (), [])
    assert not full.store.tables.exists("lake.main.s.one")


def test_a_new_table_beside_one_that_has_its_name(full: Crawler) -> None:
    full.store.tables.rename("lake.main.s.one", "kept")
    full.lake.parquet("t/one/a.parquet", MONTH)
    full.store.tables.rename("lake.main.s.parts", "lake.main.s.one")
    report = full.crawl()
    assert (report.created, report.unchanged, report.failures) == (1, 4, ())


def test_tables_of_crawls_without_rows_are_adopted(full: Crawler) -> None:
    catalog = full.store.catalogs.load("lake.main")
    rows = [row.name for row in full.store.sources.below(catalog, "")]
    assert len(rows) == 4
    full.store.sources.put_many(catalog, [], rows)
    ids = {path: full.table(path).id for path in ("s.one", "s.parts", "s.many.a")}
    report = full.crawl()
    assert (report.unchanged, report.created) == (4, 0)
    assert report.attempts > 0
    assert {path: full.table(path).id for path in ids} == ids
    assert [row.name for row in full.store.sources.below(catalog, "")] == rows
    assert full.crawl().attempts == 0


def test_a_lake_that_moved_takes_its_rows_along(full: Crawler) -> None:
    moved = full.lake.root.rename(full.lake.root.parent / "elsewhere")
    report = full.crawl(moved, moved_from=full.lake.root)
    assert (report.altered, report.created, report.failures) == (4, 0, ())
    rows = [row.location for row in full.store.sources.below(full.store.catalogs.load("lake.main"), "")]
    assert len(rows) == 4
    assert all(row.startswith(f"file://{moved}/") for row in rows)
    assert full.crawl(moved).attempts == 0


def test_a_table_whose_location_people_changed_is_left_alone(full: Crawler) -> None:
    full.store.tables.alter("lake.main.s.one", ms.SetLocation("s3://bucket/elsewhere"))
    for _ in range(2):
        report = full.crawl()
        assert [f.reason for f in report.failures] == [
            "would be lake.main.s.one, which is the table of s3://bucket/elsewhere; rename one of the two"
        ]
    full.store.tables.rename("lake.main.s.one", "theirs")
    report = full.crawl()
    assert (report.created, report.failures) == (1, ())
    assert full.table("s.theirs").location == "s3://bucket/elsewhere"


def test_an_id_that_is_another_table_leads_nowhere(full: Crawler) -> None:
    catalog, sources = full.store.catalogs.load("lake.main"), full.store.sources
    rows = {row.location.rpartition("/")[2]: row for row in sources.below(catalog, "")}  # as an import without ids
    wrong = {name: getattr(rows["one"], name) for name in type(rows["one"]).doc_fields} | {"table": rows["parts"].table}
    sources.put_many(catalog, [sources.row(rows["one"].name, **wrong)])
    report = full.crawl()
    assert (report.unchanged, report.attempts, report.failures) == (4, 1, ())
    (row,) = sources.load_many(catalog, [rows["one"].name])
    assert row is not None
    assert row.table == full.table("s.one").id


# --- tables whose files are gone


def gone(lake: Lake, *names: str) -> None:
    """Remove files, and the folders that are empty then."""
    for name in names:
        path = lake.root / name
        path.unlink()
        while not any(path.parent.iterdir()) and path.parent != lake.root:
            path = path.parent
            path.rmdir()


def test_a_table_without_files_is_marked_until_they_are_back(full: Crawler, read: list[str]) -> None:
    gone(full.lake, "s/one/a.parquet", "s/many/a.csv")
    report = full.crawl()
    assert (report.missing, report.unchanged) == (2, 2)
    since = full.table("s.one").properties["crawl.missing"]
    assert full.table("s.many.a").properties["crawl.missing"] == since
    writes = full.writes()
    again = full.crawl()
    assert (again.missing, full.writes()) == (2, writes)
    assert [n.text for n in again.notes] == [f"its files are gone since {since}"] * 2
    full.lake.parquet("s/one/a.parquet", MONTH)
    back = full.crawl()
    assert next(r for r in back.results if r.action == "altered").changes[0] == "- property crawl.missing"
    assert "crawl.missing" not in full.table("s.one").properties


def test_the_same_files_back_remove_the_mark(full: Crawler) -> None:
    away = full.lake.root.parent / "away"
    (full.lake.root / "s/one").rename(away)
    assert full.crawl().missing == 1
    away.rename(full.lake.root / "s/one")
    report = full.crawl()
    assert (report.altered, report.missing) == (1, 0)
    assert dict(full.table("s.one").properties) == {}


def test_keep(full: Crawler) -> None:
    gone(full.lake, "s/one/a.parquet")
    writes = full.writes()
    report = full.crawl(on_missing="keep")
    assert (report.missing, full.writes()) == (1, writes)
    assert full.table("s.one").version == 1


def test_drop_spares_what_people_have_edited(full: Crawler) -> None:
    full.store.tables.alter("lake.main.s.one", ms.SetComment("ours"))
    full.store.tables.rename("lake.main.s.many.b", "bb")
    full.lake.parquet("s/one/b.parquet", {"x": [1], "y": ["a"], "z": [1]})
    full.crawl()  # what the crawler adds does not make it its own again
    full.lake.parquet("s/one/c.parquet", {"x": [1], "y": ["a"], "z": [1], "w": [1]})
    full.crawl()
    gone(full.lake, "s/one/a.parquet", "s/one/b.parquet", "s/one/c.parquet", "s/many/a.csv", "s/many/b.csv")
    report = full.crawl(on_missing="drop", max_missing=1)
    assert {(r.path, r.action) for r in report.results if r.action != "unchanged"} == {
        ("lake.main.s.one", "missing"),
        ("lake.main.s.many.bb", "missing"),
        ("lake.main.s.many.a", "dropped"),
    }
    assert (report.dropped, report.missing) == (1, 2)
    assert not full.store.tables.exists("lake.main.s.many.a")
    assert "crawl.missing" in full.table("s.one").properties
    writes = full.writes()
    assert (full.crawl(on_missing="drop", max_missing=1).missing, full.writes()) == (2, writes)
    full.lake.text("s/many/a.csv", "a\n1\n")
    assert full.crawl().created == 1


def test_a_marked_table_is_dropped_when_asked(full: Crawler) -> None:
    gone(full.lake, "s/one/a.parquet")
    full.crawl()
    assert full.crawl(on_missing="drop", max_missing=1).dropped == 1
    assert full.crawl(on_missing="drop", max_missing=1).results == full.crawl().results


def test_what_was_not_seen_is_not_missing(full: Crawler) -> None:
    writes = full.writes()
    assert full.crawl(exclude=["s/one", "**/a.csv"]).missing == 0
    assert full.crawl(include=["s/parts/month=1/**"]).missing == 0
    assert full.crawl(full.lake.root / "s/parts").missing == 0
    assert full.crawl(full.lake.root / "s/many/a.csv").missing == 0
    assert set(full.partitions("s.parts")) == {"month=1", "month=2"}
    assert full.written(writes)["table"] == 0
    assert "crawl.missing" not in full.table("s.one").properties


def test_a_folder_that_cannot_be_listed_is_not_missing(full: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if str(path).endswith(("s/one", "s/parts", "s/many")):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # root may list anything
    report = full.crawl()
    assert (report.missing, len(report.failures)) == (0, 3)


def test_a_partitioned_folder_crawled_as_part_of_a_greater_one(full: Crawler) -> None:
    full.crawl(full.lake.root / "s/parts/month=1")  # a data set of its own, for that crawl
    report = full.crawl()
    assert report.missing == 0


# --- dry runs


def test_a_dry_run_writes_nothing_and_tells_what_the_crawl_does(full: Crawler) -> None:
    full.lake.parquet("s/new/a.parquet", MONTH)
    full.lake.parquet("s/parts/month=3/a.parquet", {"x": [1.5], "n": [1]})
    gone(full.lake, "s/one/a.parquet", "s/parts/month=1/a.parquet")
    full.lake.text("s/bad/a.csv", b"\x00")
    chosen: list[dict[str, Any]] = [{}, {"on_type_change": "widen", "on_missing": "drop", "max_missing": 1}]
    for options in chosen:
        writes = full.writes()
        dry = full.crawl(dry_run=True, **options)
        assert full.writes() == writes
        if options:
            wet = full.crawl(**options)
            assert [(r.path, r.action, r.changes) for r in dry.results] == [
                (r.path, r.action, r.changes) for r in wet.results
            ]
            assert (dry.failures, dry.notes, dry.missing, dry.dropped) == (wet.failures, wet.notes, 0, 1)
            assert next(r.changes for r in wet.results if r.path.endswith(".parts")) == (
                "~ x long -> double",
                "+ n long",
                "+ partition month=3",
                "- partition month=1",
            )


def test_a_dry_run_does_not_even_make_the_catalog(crawler: Crawler) -> None:
    crawler.lake.parquet("s/one/a.parquet", MONTH)
    writes = crawler.writes()
    for into in (("new", "catalog"), ("lake", "new", "schema")):
        report = crawler.crawl(into=into, dry_run=True)
        assert (report.created, report.dry_run, report.results[0].version) == (1, True, None)
    assert crawler.writes() == writes
    assert not crawler.store.metalakes.exists("new")


# --- names and signatures


def test_options_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="on_type_change is one of widen, report, fail, not 'no'"):
        Policies(on_type_change="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="on_missing"):
        Policies(on_missing="no")  # type: ignore[arg-type]
    for share in (-0.1, 1.5, True, "1", float("nan")):
        with pytest.raises(InvalidArgument, match="max_missing is a share from 0 to 1"):
            Policies(max_missing=share)  # type: ignore[arg-type]


PATHS = [
    "/a",
    "/a/b",
    "/a/" + "x" * 300,
    "/a/nu\u0308/b",
    "/a/n\u00fc/b",
    "/a/\x01/b",
    "/a/b ",
    "/a/b\u2028c",
    "s3://b/a",
]


@pytest.mark.parametrize("path", PATHS)
def test_row_names_are_clean_and_begin_as_their_folders(path: str) -> None:
    name = row_name(path)
    assert clean_name(name) == name
    parts = path.split("/")
    for depth in range(3 if parts[0] else 2, len(parts) + 1):
        assert name.startswith(prefix_of("/".join(parts[:depth]))), depth


def test_row_names_differ() -> None:
    more = ["/a/" + "x" * 301, "/a/" + "x" * 299 + "y", "/a/\x02/b"]
    assert len({row_name(path) for path in PATHS + more}) == len(PATHS + more)


def test_signatures_differ_with_all_that_decides() -> None:
    file = File("a.csv", 1, 1)
    others = [File("b.csv", 1, 1), File("a.csv", 2, 1), File("a.csv", 1, 2), File("a.csv", 1, 1, "etag")]
    signatures = [signature_of([one]) for one in (file, *others)] + [signature_of([file], incomplete=True)]
    assert len(set(signatures)) == len(signatures)
    assert signature_of([File("a.csv", 1, 1, "e")]) == signature_of([File("a.csv", 1, 2, "e")])
