"""The ids of a table's schemas are always different, whichever ids clients choose for new ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.types import LongType, NestedField, StringType

from metastore.pyiceberg import MetastoreCatalog
from tests.iceberg.conftest import properties

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
FIRST = AssertCurrentSchemaId.model_validate({"type": "assert-current-schema-id", "current-schema-id": 0})
WRITERS = 6


@pytest.fixture
def table(catalog: MetastoreCatalog) -> Table:
    catalog.create_namespace("a")
    return catalog.create_table("a.t", ROWS.schema)


def _schema(name: str, number: int = 0) -> Schema:
    fields = (NestedField(1, "n", LongType()), NestedField(2, name, StringType()))
    return Schema(*fields, schema_id=number)


def _updates(schema: Schema) -> tuple[TableUpdate, ...]:
    return (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate())


def _ids(metadata: TableMetadata) -> list[int]:
    return [schema.schema_id for schema in metadata.schemas]


def test_a_schema_takes_the_id_that_its_client_sees_is_taken(catalog: MetastoreCatalog, table: Table) -> None:
    """PyIceberg's behaviour suite expects so. The schema that had the id moves, with the snapshots that name it."""
    table.append(ROWS)
    (before,) = table.metadata.snapshots
    schema = _schema("y")
    answer = catalog.commit_table(table, (), _updates(schema))
    now = catalog.load_table("a.t")
    for metadata in (answer.metadata, now.metadata):
        assert _ids(metadata) == [1, 0]
        assert metadata.current_schema_id == schema.schema_id == 0
        assert metadata.schema() == schema
    assert [column.name for column in catalog.store.tables.load("lake.ice.a.t").columns] == ["n", "y"]
    assert now.scan().to_arrow().column_names == ["n", "y"]
    assert now.scan(snapshot_id=before.snapshot_id).to_arrow() == ROWS
    assert (_ids(table.metadata), table.metadata.snapshots[0].schema_id) == ([0], 0)  # the older handle is as it was


def test_a_schema_that_is_added_and_not_used_leaves_the_current_one(catalog: MetastoreCatalog, table: Table) -> None:
    metadata = catalog.commit_table(table, (), (AddSchemaUpdate(schema=_schema("y")),)).metadata
    assert _ids(metadata) == [1, 0]
    assert metadata.schema() == table.schema()


def test_a_schema_that_the_table_has_is_not_added_again(catalog: MetastoreCatalog, table: Table) -> None:
    catalog.commit_table(table, (), _updates(_schema("y", 1)))
    again = catalog.commit_table(catalog.load_table("a.t"), (), _updates(_schema("y", 0))).metadata
    assert (_ids(again), again.current_schema_id) == ([0, 1], 1)


def test_an_id_that_was_taken_since_the_client_read_the_table_gives_way(
    catalog: MetastoreCatalog, table: Table
) -> None:
    catalog.commit_table(table, (), _updates(_schema("y", 1)))
    metadata = catalog.commit_table(table, (), _updates(_schema("z", 1))).metadata
    assert _ids(metadata) == [0, 1, 2]
    assert metadata.schema() == _schema("z")


def test_a_required_schema_id_that_means_another_schema_now_fails(catalog: MetastoreCatalog, table: Table) -> None:
    catalog.commit_table(table, (), _updates(_schema("y")))
    with pytest.raises(CommitFailedException, match="current schema has changed: the id 0 is another schema's now"):
        catalog.commit_table(table, (FIRST,), _updates(_schema("z", 1)))
    with pytest.raises(CommitFailedException), table.update_schema() as update:
        update.add_column("z", LongType())
    assert catalog.load_table("a.t").schema() == _schema("y")


@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("requirements", [(), (FIRST,)], ids=["free", "required"])
def test_writers_that_add_schemas_under_one_id_at_once(
    catalog: MetastoreCatalog,
    table: Table,
    url: str,
    tmp_path: Path,
    number: int,
    requirements: tuple[TableRequirement, ...],
) -> None:
    start = Barrier(WRITERS)

    def add(writer: int) -> Schema | None:
        schema = _schema(f"c{writer}", number)
        with load_catalog("x", **properties(url, tmp_path / "warehouse")) as own:
            held = own.load_table("a.t")
            start.wait()
            try:
                own.commit_table(held, requirements, _updates(schema))
            except CommitFailedException:
                return None
            return schema

    with ThreadPoolExecutor(WRITERS) as pool:
        kept = [schema for schema in pool.map(add, range(WRITERS)) if schema is not None]
    metadata = catalog.load_table("a.t").metadata
    assert len(kept) == (1 if requirements else WRITERS)
    assert sorted(_ids(metadata)) == list(range(len(kept) + 1))
    assert all(schema in metadata.schemas for schema in (table.schema(), *kept))
    assert metadata.schema() in kept


def test_pyiceberg_alone_keeps_two_schemas_of_one_id(table: Table) -> None:
    """The control of the tests above."""
    assert _ids(update_table_metadata(table.metadata, _updates(_schema("y")))) == [0, 0]
