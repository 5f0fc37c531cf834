"""Delta, Iceberg and Hudi tables are not plain Parquet: each is a failure that names the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.conftest import Crawler, Lake, paths_of

FILES = {
    "Delta": ("_delta_log/00000000000000000000.json", "part-0.parquet", "part-1.parquet"),
    "Delta ": ("_delta_log/00000000000000000010.checkpoint.parquet", "day=1/part-0.parquet"),
    "Iceberg": ("metadata/00001-ab.metadata.json", "metadata/m0.avro", "data/x.parquet", "data/delete.parquet"),
    "Iceberg ": ("metadata/v1.gz.metadata.json", "data/day=1/x.parquet"),
    "Hudi": (".hoodie/hoodie.properties", "day=1/x.parquet", ".hoodie/metadata/.hoodie/hoodie.properties"),
}


def write(lake: Lake, form: str, folder: str) -> None:
    for name in FILES[form]:
        if name.endswith(("part-0.parquet", "part-1.parquet", "x.parquet")):
            lake.parquet(f"{folder}{name}", {"x": [1, 2, 3]})
        else:
            lake.text(f"{folder}{name}", "{}")


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("folder", ["", "s/t/"])
def test_a_table_of_another_format_is_a_failure(crawler: Crawler, form: str, folder: str) -> None:
    write(crawler.lake, form, folder)
    for _ in range(2):
        report = crawler.crawl(on_missing="drop")
        (failure,) = report.failures
        assert Path(failure.path) == crawler.lake.root / folder
        assert failure.reason.startswith(f"is a table in the format {form.strip()}, ")
        assert report.tables == 0


def test_tables_beside_it_are_registered_and_one_of_an_earlier_crawl_stays(crawler: Crawler) -> None:
    crawler.lake.parquet("s/t/part-0.parquet", {"x": [1]})
    crawler.lake.parquet("s/u/metadata/a.parquet", {"x": [1]})  # a folder of that name is not an Iceberg table yet
    crawler.lake.text("s/v/_delta_log/0.json", "{}")
    crawler.lake.parquet("s/v/a.parquet", {"x": [1]})
    assert paths_of(crawler.crawl()) == ["s.t", "s.u.metadata", "s.v"]
    write(crawler.lake, "Delta", "s/t/")
    report = crawler.crawl(on_missing="drop", max_missing=1)
    assert (paths_of(report), len(report.failures), report.dropped) == (["s.u.metadata", "s.v"], 1, 0)
    assert crawler.table("s.t").version == 1


def test_a_log_that_cannot_be_read_is_a_failure(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    write(crawler.lake, "Delta", "s/t/")
    scan = os.scandir

    def refused(path: Any) -> Any:
        if os.fspath(path).endswith("_delta_log"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    report = crawler.crawl()
    assert (report.tables, [one.reason for one in report.failures]) == (0, ["cannot be listed: Permission denied"])


def test_a_log_that_leads_nowhere_is_a_failure(crawler: Crawler) -> None:
    """A link into a folder without permission fails like this link to itself."""
    crawler.lake.parquet("s/t/a.parquet", {"a": [1]})
    (crawler.lake.root / "s/t/_delta_log").symlink_to("_delta_log")
    report = crawler.crawl()
    why = "cannot be listed, because of _delta_log in it: Too many levels of symbolic links"
    assert (report.tables, [one.reason for one in report.failures]) == (0, [why])
