"""A lake under two names, or in two catalogs: docs/crawl.md says what a crawl of the other one does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import metastore as ms
from metastore.crawl.known import as_known
from tests.crawl.conftest import Crawler, paths_of, reasons_of


@pytest.mark.parametrize("first", [True, False])
def test_a_lake_and_a_link_to_it_are_one_place(crawler: Crawler, first: bool) -> None:
    for name in ("one/a.parquet", "deep/two/a.parquet"):
        crawler.lake.parquet(name, {"x": [1]})
    link = crawler.lake.root.with_name("link")
    link.symlink_to(crawler.lake.root)
    one, other = (link, crawler.lake.root) if first else (crawler.lake.root, link)
    crawler.crawl(one)
    crawler.lake.parquet("deep/two/b.parquet", {"x": [1]})
    report = crawler.crawl(other, on_missing="drop")
    assert (set(paths_of(report)), reasons_of(report)) == ({f"{one.name}.one", "deep.two"}, {})
    assert [note.path for note in report.notes] == [str(one)]
    assert [table.path for table in crawler.store.find("lake.main.deep", kind="table")] == ["lake.main.deep.two"]
    below = crawler.crawl(Path(f"/{other}/deep"))
    assert [(row.path, row.action) for row in below.results] == [("lake.main.deep.two", "unchanged")]


def test_a_bucket_has_one_name(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")  # else it is asked for
    store, catalog = crawler.store, crawler.store.catalogs.load("lake.main")
    store.sources.put_many(catalog, [store.sources.row("s3a://b/m/t", location="s3a://b/m/t")])
    store.crawls.put_many(catalog, [store.crawls.row("run", "done", {"paths": ["s3a://b/m"]})])
    given = ["s3://K:S@b/m?scheme=http", "s3a://b/m", "s3://b/other", "s3://b/m/t"]
    named, notes = as_known(store, ("lake", "main"), given)
    assert named == ["s3a://K:S@b/m?scheme=http", "s3a://b/m", "s3://b/other", "s3a://b/m/t"]
    assert [note.path for note in notes] == ["s3a://b/m", "s3a://b/m/t"]


def test_a_copy_of_a_catalog_is_crawled_and_not_its_original(crawler: Crawler, tmp_path: Path) -> None:
    store = crawler.store
    for name in "ab":
        crawler.lake.parquet(f"s/{name}/1.parquet", {"x": [1]})
    crawler.crawl()
    store.tables.alter("lake.main.s.b", ms.SetComment("mine"))
    store.export_to(tmp_path / "main.jsonl", "lake.main")
    store.metalakes.create("copy")
    store.import_from(tmp_path / "main.jsonl", into="copy")
    crawler.lake.parquet("s/a/2.parquet", {"new": [1], "x": [1]})
    shutil.rmtree(crawler.lake.root / "s/b")
    crawler.lake.parquet("s/c/1.parquet", {"x": [1]})
    report = crawler.crawl(into=("copy", "main"), on_missing="drop", max_missing=1)
    assert sorted((row.path, row.action) for row in report.results) == [
        ("copy.main.s.a", "altered"),
        ("copy.main.s.c", "created"),
    ]
    assert [(table.path, table.version) for table in store.find("lake.main", kind="table")] == [
        ("lake.main.s.a", 1),
        ("lake.main.s.b", 2),
    ]
    assert [row.action for row in crawler.crawl(into=("copy", "main")).results] == ["unchanged"] * 2
    assert store.tables.exists("copy.main.s.b")
