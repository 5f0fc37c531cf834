"""The examples of docs/spark.md run, on a lake that has what they name."""

from __future__ import annotations

from pathlib import Path

import pytest

import metastore as ms
from metastore.crawl.dataset.profile import profile_tables
from tests.docs.examples import ROOT, failures
from tests.spark.conftest import Reader


def test_examples(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader.url = "sqlite:///catalog.db"
    for month in (1, 2):
        reader.lake.parquet(f"nyc/flights/month={month}/x.parquet", {"delay": [1.5, 2.5]})
    reader.lake.parquet("nyc/other/x.parquet", {"a": [1]})
    reader.crawl()
    list(profile_tables(reader.spark, reader.url, [("lake", "main", "nyc", "flights")], None))
    text = (ROOT / "docs/spark.md").read_text(encoding="utf-8").replace("```py\n", "```python\n")
    assert text.count("```python\n") == 2
    assert (
        list(failures(text, "spark.md", tmp_path, {"__name__": "__example__", "ms": ms, "spark": reader.spark})) == []
    )
