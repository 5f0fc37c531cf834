"""Crawls that overlap: an older listing never writes over what a newer one wrote."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import metastore as ms
from tests.crawl.conftest import Between, Crawler, Lake, crawl_here


def months(lake: Lake, *numbers: int) -> None:
    for number in numbers:
        lake.parquet(f"s/t/month={number}/a.parquet", {"x": [1, 2]})


def newer(crawler: Crawler, **options: Any) -> None:
    crawl_here(crawler.url, [crawler.lake.root], **options)


@pytest.mark.parametrize("after", ["listed", "read"])
@pytest.mark.parametrize("known", [True, False])
def test_an_older_listing_does_not_take_back_a_partition(
    crawler: Crawler, between: Between, after: str, known: bool
) -> None:
    if known:
        months(crawler.lake, 1)
        crawler.crawl()
    months(crawler.lake, 2, 3)

    def another() -> None:
        months(crawler.lake, 4)
        newer(crawler)

    between(after, another)
    report = crawler.crawl()
    assert "month=4" in crawler.partitions("s.t")
    assert crawler.seen("s.t")["rows"] == (8 if known else 6)
    assert (report.created, report.altered, report.failures) == (0, 0, ())
    assert [note.text for note in report.notes] == ["another crawl listed it later; the writes of that crawl stay"]
    assert crawler.crawl().attempts == 0
    assert list(crawler.store.verify()) == []


def test_an_older_listing_does_not_make_again_what_a_newer_one_dropped(crawler: Crawler, between: Between) -> None:
    for name in "abcdef":
        crawler.lake.parquet(f"s/{name}/a.parquet", {"x": [1]})
    crawler.crawl()
    crawler.lake.parquet("s/a/b.parquet", {"x": [1]})

    def another() -> None:
        shutil.rmtree(crawler.lake.root / "s/a")
        newer(crawler, on_missing="drop")

    between("read", another)
    report = crawler.crawl()
    assert (report.created, report.altered, report.tables) == (0, 0, 5)
    assert not crawler.store.tables.exists("lake.main.s.a")
    writes = crawler.writes()
    assert crawler.crawl().attempts == 0
    assert crawler.writes() == writes
    crawler.lake.parquet("s/a/a.parquet", {"x": [1]})
    assert crawler.crawl().created == 1


def test_an_older_listing_does_not_mark_what_a_newer_one_found(crawler: Crawler, between: Between) -> None:
    months(crawler.lake, 1)
    crawler.lake.parquet("s/u/a.parquet", {"x": [1]})
    crawler.crawl()
    shutil.rmtree(crawler.lake.root / "s/t")

    def another() -> None:
        months(crawler.lake, 1, 2)
        newer(crawler)
        shutil.rmtree(crawler.lake.root / "s/t")  # gone again: the next crawl says so

    between("listed", another)
    report = crawler.crawl()
    assert report.missing == 0
    assert "crawl.missing" not in crawler.table("s.t").properties
    assert crawler.crawl().missing == 1


def test_an_older_listing_does_not_call_unusable_what_a_newer_one_read(crawler: Crawler, between: Between) -> None:
    crawler.lake.text("s/t/a.csv", b"\x00")
    crawler.lake.text("s/t/b.csv", b"\x00")

    def another() -> None:
        crawler.lake.text("s/t/a.csv", "a\n1\n")
        crawler.lake.text("s/t/b.csv", "a\n1\n")
        newer(crawler)

    between("read", another)
    catalog = crawler.store.catalogs.load("lake.main")
    crawler.crawl()
    rows = [row for row in crawler.store.sources.below(catalog, "") if row.table is not None]
    assert [row.again for row in rows] == [False]
    assert crawler.crawl().attempts == 0


def test_the_time_of_a_listing_is_the_database_s(crawler: Crawler) -> None:
    months(crawler.lake, 1)
    before = crawler.store.sources.now()
    crawler.crawl()
    (row,) = crawler.store.sources.list("lake.main")
    assert before < row.listed < crawler.store.sources.now()
    with ms.open(crawler.url) as store:
        assert store.sources.now() > row.listed
