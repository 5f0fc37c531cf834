"""A lake under two names, or in two catalogs: docs/crawl.md says what a crawl of the other one does."""

from __future__ import annotations

import shutil
from pathlib import Path

import metastore as ms
from tests.crawl.conftest import Crawler, paths_of, reasons_of


def test_a_link_to_a_lake_is_another_place(crawler: Crawler) -> None:
    for name in ("one/a.parquet", "deep/two/a.parquet"):
        crawler.lake.parquet(name, {"x": [1]})
    crawler.crawl()
    link = crawler.lake.root.with_name("link")
    link.symlink_to(crawler.lake.root)
    report = crawler.crawl(link, on_missing="drop")
    assert paths_of(report) == ["link.one"]
    assert list(reasons_of(report)) == ["two"]
    assert {t.path for t in crawler.store.find("lake.main", kind="table")} == {
        f"lake.main.{path}" for path in ("lake.one", "link.one", "deep.two")
    }


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
