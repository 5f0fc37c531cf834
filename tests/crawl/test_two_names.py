"""A lake under two names: docs/crawl.md says what a crawl of the other name does."""

from __future__ import annotations

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
