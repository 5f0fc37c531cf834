"""Commits of many writers: appends never fail, what must not merge fails at once, and no file is left over."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.types import StringType

from metastore.pyiceberg import MetastoreCatalog
from tests.iceberg.conftest import properties

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
WRITERS, APPENDS = 4, 4


def _row(n: int) -> pa.Table:
    return pa.table({"n": pa.array([n], pa.int64())})


@pytest.fixture
def table(catalog: MetastoreCatalog) -> Table:
    catalog.create_namespace("a")
    return catalog.create_table("a.t", ROWS.schema)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_stale_append_is_put_on_top(catalog: MetastoreCatalog, version: str) -> None:
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema, properties={"format-version": version, "commit.retry.num-retries": "0"})
    writers = [catalog.load_table("a.t") for _ in range(3)]
    for n, writer in enumerate(writers):
        writer.append(_row(n))
    now = catalog.load_table("a.t")
    assert sorted(now.scan().to_arrow()["n"].to_pylist()) == [0, 1, 2]
    chain = now.metadata.snapshots
    assert [s.parent_snapshot_id for s in chain] == [None, chain[0].snapshot_id, chain[1].snapshot_id]
    assert [s.summary["total-records"] for s in chain if s.summary] == ["1", "2", "3"]
    if version == "2":
        assert [s.sequence_number for s in chain] == [1, 2, 3]
        entries = [m.fetch_manifest_entry(now.io)[0] for m in chain[-1].manifests(now.io)]
        assert sorted(e.sequence_number or 0 for e in entries) == [1, 2, 3]


def test_two_appends_of_one_transaction_are_put_on_top_together(catalog: MetastoreCatalog, table: Table) -> None:
    table.transaction().set_properties({"commit.retry.num-retries": "0"}).commit_transaction()
    stale = catalog.load_table("a.t")
    table.append(_row(1))
    with stale.transaction() as transaction:
        transaction.append(_row(2))
        transaction.append(_row(3))
    now = catalog.load_table("a.t")
    assert sorted(now.scan().to_arrow()["n"].to_pylist()) == [1, 2, 3]
    assert [s.sequence_number for s in now.metadata.snapshots] == [1, 2, 3]


def test_properties_of_two_writers_are_merged(catalog: MetastoreCatalog, table: Table) -> None:
    other = catalog.load_table("a.t")
    with table.transaction() as transaction:
        transaction.set_properties({"x": "1"})
    with other.transaction() as transaction:
        transaction.set_properties({"y": "2"})
    assert {"x": "1", "y": "2"}.items() <= catalog.load_table("a.t").properties.items()


def test_a_property_that_two_writers_remove_is_gone(catalog: MetastoreCatalog, table: Table) -> None:
    same = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    catalog.commit_table(table, same, (SetPropertiesUpdate(updates={"k": "v"}),))
    gone = RemovePropertiesUpdate(removals=["k", "k", "never"])
    for _ in range(2):
        catalog.commit_table(table, same, (SetPropertiesUpdate(updates={"l": "w"}), gone))
    again = RemovePropertiesUpdate(removals=["l"])
    catalog.commit_table(table, same, (again, again))
    assert catalog.load_table("a.t").properties == {}


def test_a_snapshot_that_two_writers_expire_is_gone(catalog: MetastoreCatalog, table: Table) -> None:
    table.append(_row(1))
    table.append(_row(2))
    first, last = table.metadata.snapshots
    other = catalog.load_table("a.t")
    for writer in (table, other):
        writer.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    now = catalog.load_table("a.t")
    assert [one.snapshot_id for one in now.metadata.snapshots] == [last.snapshot_id]
    assert now.metadata_location == table.metadata_location  # the second writer had nothing to do
    assert sorted(now.scan().to_arrow()["n"].to_pylist()) == [1, 2]


def test_an_overwrite_of_a_branch_that_moved_fails(catalog: MetastoreCatalog, table: Table) -> None:
    table.append(_row(1))
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    stale = catalog.load_table("a.t")
    table.append(_row(2))
    with pytest.raises(CommitFailedException, match="has changed"):
        stale.overwrite(_row(3))
    assert sorted(catalog.load_table("a.t").scan().to_arrow()["n"].to_pylist()) == [1, 2]


def test_a_stale_schema_id_fails_at_once(catalog: MetastoreCatalog, table: Table) -> None:
    with pytest.raises(
        CommitFailedException, match="Requirement failed: current schema id has changed: expected 7, found 0"
    ):
        catalog.commit_table(
            table,
            (AssertCurrentSchemaId.model_validate({"type": "assert-current-schema-id", "current-schema-id": 7}),),
            (SetPropertiesUpdate(updates={"k": "v"}),),
        )
    assert "k" not in catalog.load_table("a.t").properties


def test_several_tables_change_together_or_not_at_all(catalog: MetastoreCatalog, table: Table) -> None:
    other = catalog.create_table("a.u", ROWS.schema)
    good = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    bad = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    update = (SetPropertiesUpdate(updates={"k": "v"}),)
    with pytest.raises(CommitFailedException):
        catalog.commit_tables([("a.t", good, update), ("a.u", bad, update)])
    assert "k" not in catalog.load_table("a.t").properties
    right = (AssertTableUUID(uuid=other.metadata.table_uuid),)
    catalog.commit_tables([("a.t", good, update), ("a.u", right, update)])
    assert [catalog.load_table(name).properties["k"] for name in ("a.t", "a.u")] == ["v", "v"]
    last = [list(catalog.store.tables.history(f"lake.ice.a.{n}"))[-1].operation_id for n in ("t", "u")]
    assert last[0] == last[1]  # one commit


def _append(url: str, warehouse: Path, first: int) -> None:
    with load_catalog("x", **properties(url, warehouse)) as catalog:
        for n in range(first, first + APPENDS):
            catalog.load_table("a.t").append(_row(n))


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
def test_every_append_of_many_processes_is_there_once(
    catalog: MetastoreCatalog, table: Table, url: str, tmp_path: Path
) -> None:
    """Field case 33."""
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})  # PyIceberg must not need its own
    context = multiprocessing.get_context("spawn")
    warehouse = tmp_path / "warehouse"
    writers = [context.Process(target=_append, args=(url, warehouse, 100 * n)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    now = catalog.load_table("a.t")
    expected = sorted(100 * writer + n for writer in range(WRITERS) for n in range(APPENDS))
    assert sorted(now.scan().to_arrow()["n"].to_pylist()) == expected
    assert len(now.metadata.snapshots) == WRITERS * APPENDS
    _assert_no_orphans(now, warehouse)
    assert catalog.store.verify() == []


def _assert_no_orphans(table: Table, warehouse: Path) -> None:
    """Each metadata file and each manifest list belongs to the table."""
    files = {path.name for path in warehouse.rglob("*.metadata.json")}
    named = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
    assert files == {name.rsplit("/", 1)[-1] for name in named}
    lists = {path.name for path in warehouse.rglob("snap-*.avro")}
    assert lists == {snapshot.manifest_list.rsplit("/", 1)[-1] for snapshot in table.metadata.snapshots}


def test_an_older_handle_of_a_table_stays_as_it_was(catalog: MetastoreCatalog, table: Table) -> None:
    """Copies of metadata share their parts; what a later commit changes is not one of them."""
    table.append(_row(1))
    old = catalog.load_table("a.t")
    before = old.metadata.model_dump_json()
    plain = TableMetadataUtil.parse_raw(before)
    assert old.metadata == plain == old.metadata.model_copy(deep=True)
    assert plain.model_copy(update={"location": "file:///x"}) != old.metadata
    now = catalog.load_table("a.t")
    now.append(_row(2))
    now.manage_snapshots().create_tag(now.metadata.snapshots[0].snapshot_id, "first").commit()
    with now.update_schema() as update:
        update.add_column("o", StringType())
    with now.transaction() as transaction:
        transaction.set_properties({"k": "v"})
        transaction.remove_properties("k")
    assert old.metadata.model_dump_json() == before
    assert len(now.metadata.snapshots) == 2
    assert pickle.loads(pickle.dumps(now.metadata)) == now.metadata
