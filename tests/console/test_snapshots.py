"""The snapshots of Iceberg tables: a graph with exact ids, read with the user's rights, and never a stuck page."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

import metastore as ms
from metastore.pyiceberg import MetastoreCatalog
from metastore.serve.console import snapshots
from metastore.serve.console.snapshots import _graph, _shown
from metastore.serve.iceberg.warehouses import Warehouses
from tests.console.server import served

TABLE: dict[str, Any] = {"path": "lake.ice.db.t", "kind": "table"}


def test_snapshots_are_a_graph_with_branches_and_tags(sqlite_url: str, tmp_path: Path) -> None:
    place = f"file://{tmp_path}/warehouse"
    catalog = MetastoreCatalog("ice", uri=sqlite_url, **{"metastore.catalog": "lake.ice"}, warehouse=place)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for _ in range(2):
        table.append(pa.table({"id": [1, 2]}))
    with table.update_schema() as change:
        change.add_column("name", StringType())
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "start").create_branch(first, "try").commit()
    with served(sqlite_url, warehouses={"lake.ice": place}) as console:
        page = console.get(**TABLE)
        for one in table.snapshots():
            assert f"<code>{one.snapshot_id}</code>" in page.html
        assert "tag start" in page.text
        assert "branch try" in page.text
        assert "branch main" in page.text
        assert "2 added records" in page.text
        assert "1 current id long, name string" in page.text
    with served(sqlite_url) as console:  # a server that has no such warehouse reads no file
        assert "not reachable from this server" in console.get(**TABLE).text


def test_a_file_that_does_not_answer_holds_no_page(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational")
        store.tables.create("lake.ice.db.t", parents=True, properties={"metadata_location": "s3://away/x.json"})
    go_on = threading.Event()
    monkeypatch.setattr(Warehouses, "catalog", lambda *_: go_on.wait(60))
    monkeypatch.setattr(snapshots, "_SECONDS", 0.05)
    with served(sqlite_url) as console:
        try:
            for _ in range(8):
                assert "not reachable" in console.get(**TABLE).text
        finally:
            go_on.set()


def test_the_graph_has_a_lane_for_each_branch() -> None:
    assert _graph([(4, 2), (3, 1), (2, 1), (1, None)], range(5)) == {4: "●", 3: "│ ●", 2: "● │", 1: "  ●"}
    assert _graph([(2, 9), (1, None)], (1, 2)) == {2: "●", 1: "●"}


def test_the_graph_has_as_many_lanes_as_the_page_has_lines() -> None:
    """A client wrote the file: 8,000 branches took 7 s and 91 MB, and ten times as many a hundred times that."""
    count = 1000
    steps = [
        SimpleNamespace(snapshot_id=n, parent_snapshot_id=n + count, timestamp_ms=-n, summary=None, schema_id=None)
        for n in range(2 * count)
    ]
    page = _shown(cast("Any", SimpleNamespace(snapshots=steps, refs={}, schemas=[], partition_specs=[])))
    assert max(len(one.graph) for one in page.snapshots) < 2 * len(page.snapshots) == 200
    assert page.left == 2 * count - 100
