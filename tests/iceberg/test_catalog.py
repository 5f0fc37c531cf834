"""Iceberg tables, views and namespaces are those of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType
from pyiceberg.view.metadata import ViewVersion

import metastore as ms
from metastore.imports.iceberg import import_iceberg
from metastore.pyiceberg import MetastoreCatalog
from metastore.pyiceberg.columns import columns_of
from metastore.pyiceberg.neighbours import Neighbours
from metastore.secrets.keyring import new_key
from tests.iceberg.conftest import properties
from tests.servers.postgres import Databases

pytestmark = pytest.mark.one_in(3)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True, doc="the key"),
    NestedField(2, "name", StringType()),
    NestedField(
        3,
        "address",
        StructType(NestedField(4, "city", StringType()), NestedField(5, "zip code", IntegerType(), required=True)),
    ),
    NestedField(6, "tags", ListType(7, StringType(), element_required=False)),
)
ROWS = pa.table({"n": [1, 2]})


def test_the_store_shows_what_iceberg_wrote(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a.b")
    table = catalog.create_table("a.b.t", SCHEMA, properties={"comment": "of people", "owner": "ann"})
    shown = catalog.store.tables.load("lake.ice.a.b.t")
    assert (shown.format, shown.location, shown.comment) == ("iceberg", table.location(), "of people")
    assert shown.properties["metadata_location"] == table.metadata_location
    assert shown.properties["owner"] == "ann"
    assert [(c.name, c.type, c.nullable, c.comment) for c in shown.columns] == [
        ("id", "long", False, "the key"),
        ("name", "string", True, None),
        ("address", "struct<city: string, `zip code`: int not null>", True, None),
        ("tags", "list<string>", True, None),
    ]
    table.append(_people(table.schema()))
    assert catalog.store.tables.load("lake.ice.a.b.t").properties["current_snapshot_id"] == str(
        catalog.load_table("a.b.t").metadata.current_snapshot_id
    )
    assert catalog.store.verify() == []


def _people(schema: Schema) -> pa.Table:
    fields = schema.as_arrow()
    return pa.Table.from_pylist(
        [{"id": 1, "name": "x", "address": {"city": "y", "zip code": 3}, "tags": ["z"]}], schema=fields
    )


def test_tags_finds_and_the_feed_see_iceberg_tables(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", ROWS.schema, properties={"team": "sales"})
    store = catalog.store
    store.tags.create("lake.pii")
    store.tags.attach("lake.ice.a.t", "lake.pii", column="n")
    before = store.position()
    table.append(ROWS)
    assert [one.name for one in store.tags.on("lake.ice.a.t", column="n")] == ["pii"]
    assert [one.path for one in store.find("lake", kind="table", properties={"team": "sales"})] == ["lake.ice.a.t"]
    changes = [(one.action, one.kind, one.path_after, one.version) for one in store.changes(after=before)]
    assert changes == [("alter", "table", "lake.ice.a.t", 2)]
    assert len(list(store.at(before).tables.load("lake.ice.a.t").columns)) == len(ROWS.schema)
    catalog.rename_table("a.t", "a.u")  # what is attached goes along
    assert [one.name for one in store.tags.on("lake.ice.a.u", column="n")] == ["pii"]


def test_columns_follow_the_schema_and_keep_their_ids(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", SCHEMA)
    before = {c.name: c.id for c in catalog.store.tables.load("lake.ice.a.t").columns}
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("name", "title")
        update.rename_column("address.city", "town")
        update.add_column("born", IntegerType(), doc="a year")
        update.move_first("tags")
        update.delete_column("id")
        update.make_column_optional("address.zip code")
    shown = catalog.store.tables.load("lake.ice.a.t").columns
    assert shown == columns_of(catalog.load_table("a.t").schema())
    assert [c.name for c in shown] == ["tags", "title", "address", "born"]
    assert {c.name: c.id for c in shown}["title"] == before["name"]


def test_two_columns_swap_their_names(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", Schema(NestedField(1, "x", LongType()), NestedField(2, "y", StringType())))
    with table.update_schema() as update:
        update.rename_column("x", "between")
    with table.update_schema() as update:
        update.rename_column("y", "x")
        update.rename_column("between", "y")
    shown = catalog.store.tables.load("lake.ice.a.t").columns
    assert [(c.name, c.type) for c in shown] == [("y", "long"), ("x", "string")]


def test_columns_that_were_altered_in_the_store_do_not_stop_a_commit(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", SCHEMA)
    catalog.store.tables.alter("lake.ice.a.t", ms.AddColumn("born", "string"))
    with table.update_schema() as update:
        update.add_column("born", IntegerType())
    assert catalog.store.tables.load("lake.ice.a.t").columns == columns_of(table.schema())


def test_namespaces_are_schemas(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a.b", {"owner": "ann"})
    catalog.create_namespace(("a", "50%_off"))
    assert catalog.load_namespace_properties("a") == {"exists": "true"}
    assert sorted(catalog.list_namespaces("a")) == [("a", "50%_off"), ("a", "b")]
    assert catalog.list_namespaces() == [("a",)]
    summary = catalog.update_namespace_properties("a.b", {"owner", "none"}, {"k": "v"})
    assert (summary.removed, summary.updated, summary.missing) == (["owner"], ["k"], ["none"])
    assert dict(catalog.store.schemas.load("lake.ice.a.b").properties) == {"k": "v"}
    with pytest.raises(NamespaceNotEmptyError, match=r"Namespace a is not empty"):
        catalog.drop_namespace("a")
    catalog.drop_namespace("a.b")
    with pytest.raises(NoSuchNamespaceError, match=r"Namespace does not exist: a\.b"):
        catalog.drop_namespace("a.b")


def test_properties_that_are_written_back_keep_the_secrets(
    catalog: MetastoreCatalog, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    root = catalog.store.catalogs.alter("lake.ice", ms.SetProperty("metastore.secret-properties", "api-key"))
    catalog.create_namespace("s", {"api-key": "hunter2", "password": ms.secret("env:METASTORE_SECRET_KEY")})
    shown = catalog.load_namespace_properties("s")
    assert shown["password"] == "secret:env:METASTORE_SECRET_KEY"
    catalog.update_namespace_properties("s", updates=shown)
    schema = catalog.store.schemas.load((*root.names, "s"))
    assert (schema.version, schema.to_dict()["properties"]) == (1, shown)
    assert catalog.store.reveal(schema, "api-key") == "hunter2"
    for _ in range(2):
        assert import_iceberg(sqlite_url, catalog, "lake.copy").failures == []
    with ms.open(sqlite_url) as copy:
        assert copy.schemas.load("lake.copy.s").to_dict()["properties"] == shown


def test_rename_keeps_the_files(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    catalog.create_namespace("b.c")
    table = catalog.create_table("a.t", ROWS.schema)
    table.append(ROWS)
    moved = catalog.rename_table("a.t", "b.c.u")
    assert moved.metadata_location == table.metadata_location
    assert moved.scan().to_arrow() == ROWS
    catalog.create_table("a.t", ROWS.schema)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table("a.t", "b.c.u")
    with pytest.raises(NoSuchNamespaceError):
        catalog.rename_table("a.t", "none.t")
    with pytest.raises(NoSuchTableError, match=r"Table does not exist: a\.none"):
        catalog.rename_table("a.none", "a.u")


def test_a_purged_table_leaves_no_file_and_cannot_be_restored(catalog: MetastoreCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema).append(ROWS)
    catalog.purge_table("a.t")
    assert not catalog.table_exists("a.t")
    assert list(catalog.store.tables.dropped("lake.ice.a")) == []
    assert [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()] == []


def test_a_purge_deletes_the_files_of_a_commit_that_comes_meanwhile(
    catalog: MetastoreCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stayed for ever: the purge had read the metadata before, and removed the table as it was by then."""
    catalog.create_namespace("a")
    rows = [catalog.create_table("a.t", ROWS.schema)]
    looks = Neighbours.are_more_than

    def appending(own: Neighbours, most: int, *place: Any) -> bool:
        while rows:
            rows.pop().append(ROWS)
        return looks(own, most, *place)

    monkeypatch.setattr(Neighbours, "are_more_than", appending)
    catalog.purge_table("a.t")
    assert [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()] == []


def test_a_purge_beside_a_writer_without_end_gives_up(
    catalog: MetastoreCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", ROWS.schema)
    looks = Neighbours.are_more_than

    def altering(own: Neighbours, most: int, *place: Any) -> bool:
        entity = catalog.store.tables.load("lake.ice.a.t")
        assert entity.version < 50
        catalog.store.tables.alter(entity, ms.SetProperty("n", str(entity.version)))
        return looks(own, most, *place)

    monkeypatch.setattr(Neighbours, "are_more_than", altering)
    with pytest.raises(CommitFailedException, match="10 times; call again"):
        catalog.purge_table("a.t")
    assert Path(table.metadata_location.removeprefix("file://")).exists()


def test_a_purge_leaves_the_files_that_a_copy_has_too(catalog: MetastoreCatalog, tmp_path: Path) -> None:
    """Of a copied table and the original, a purge of either deleted the files of both."""
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema).append(ROWS)
    catalog.create_namespace("copies")
    catalog.store.export_to(tmp_path / "a.jsonl", "lake.ice.a")
    catalog.store.import_from(tmp_path / "a.jsonl", into="lake.ice.copies")
    catalog.load_table("copies.a.t").append(ROWS)
    catalog.drop_table("a.t")
    catalog.purge_table("copies.a.t")
    catalog.store.tables.restore("lake.ice.a.t")
    assert catalog.load_table("a.t").scan().to_arrow() == ROWS
    metadata = catalog.load_table("a.t").metadata_location
    catalog.purge_table("a.t")
    assert not Path(metadata.removeprefix("file://")).exists()


def test_a_purge_leaves_the_files_if_the_database_does_not_say_who_has_them(
    catalog: MetastoreCatalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The table was purged, the caller got an error, and no log named the files that stayed."""
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", ROWS.schema)
    catalog.create_table("a.other", ROWS.schema)
    catalog.purge_table("a.other")  # so that the folders of all tables were read

    def away() -> None:
        raise ms.BackendUnavailable("away")

    monkeypatch.setattr(catalog.store._session.backend, "snapshot", away)
    catalog.purge_table("a.t")
    assert Path(table.metadata_location.removeprefix("file://")).exists()
    assert table.metadata.location in caplog.text


def test_a_purge_leaves_the_files_of_a_copy_in_the_first_folder_after_the_original_has_moved(
    catalog: MetastoreCatalog, tmp_path: Path
) -> None:
    """The manifests of a moved table name files in its first folder, although nothing else of its metadata does."""
    first = f"file://{tmp_path}/warehouse/t-{ms.new_operation_id().hex}"
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema, first, properties={"write.metadata.previous-versions-max": "1"})
    catalog.load_table("a.t").append(ROWS)
    catalog.create_namespace("copies")
    catalog.store.export_to(tmp_path / "t.jsonl", "lake.ice.a.t")
    catalog.store.import_from(tmp_path / "t.jsonl", into="lake.ice.copies")
    catalog.commit_tables([("a.t", (), (SetLocationUpdate(location=f"file://{tmp_path}/warehouse/moved"),))])
    catalog.load_table("a.t").append(ROWS)
    moved = catalog.load_table("a.t")
    moved.maintenance.expire_snapshots().by_id(moved.metadata.snapshots[0].snapshot_id).commit()
    moved.refresh().append(ROWS)
    catalog.purge_table("a.t")
    assert catalog.load_table("copies.t").scan().to_arrow() == ROWS


def test_a_purge_of_a_copy_leaves_the_files_of_the_original_which_moved_to_a_folder_like_a_servers(
    catalog: MetastoreCatalog, tmp_path: Path
) -> None:
    """A table that was made before its folder's name has files elsewhere, too."""
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema, f"file://{tmp_path}/warehouse/t-{ms.new_operation_id().hex}").append(ROWS)
    catalog.create_namespace("copies")
    catalog.store.export_to(tmp_path / "t.jsonl", "lake.ice.a.t")
    catalog.store.import_from(tmp_path / "t.jsonl", into="lake.ice.copies")
    later = UUID(int=ms.new_operation_id().int + (3_600_000 << 80)).hex
    catalog.commit_tables([("a.t", (), (SetLocationUpdate(location=f"file://{tmp_path}/warehouse/t-{later}"),))])
    catalog.purge_table("copies.t")
    assert catalog.load_table("a.t").scan().to_arrow() == ROWS


def test_a_purge_deletes_the_files_although_others_name_the_uuid(catalog: MetastoreCatalog) -> None:
    """Whoever may read a table and make another one could keep its files for ever."""
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", ROWS.schema)
    uuid, file = str(table.metadata.table_uuid), Path(table.metadata_location.removeprefix("file://"))
    catalog.store.tables.create("lake.ice.a.x", comment=uuid, properties={"table_uuid": uuid})
    catalog.create_table("a.u", ROWS.schema, properties={"mine": uuid})
    assert file.exists()
    catalog.purge_table("a.t")
    assert not file.exists()


def test_a_dropped_table_can_be_restored_in_the_store(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema).append(ROWS)
    catalog.drop_table("a.t")
    with pytest.raises(NoSuchTableError):
        catalog.drop_table("a.t")
    catalog.store.tables.restore("lake.ice.a.t")
    assert catalog.load_table("a.t").scan().to_arrow() == ROWS


def test_a_table_of_another_format_is_left_alone(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    catalog.store.tables.create("lake.ice.a.p", format="parquet")
    assert catalog.list_tables("a") == []
    assert not catalog.table_exists("a.p")
    for call in (catalog.load_table, catalog.drop_table, catalog.purge_table):
        with pytest.raises(NoSuchIcebergTableError):
            call("a.p")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("a.p", ROWS.schema)
    assert catalog.store.tables.exists("lake.ice.a.p")


def test_a_failed_create_leaves_no_file(catalog: MetastoreCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema)
    before = sorted((tmp_path / "warehouse").rglob("*.json"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("a.t", ROWS.schema)
    with pytest.raises(ValueError, match="control character"):
        catalog.create_table(("a", "t\x01"), ROWS.schema)
    assert sorted((tmp_path / "warehouse").rglob("*.json")) == before


def test_a_table_is_registered_from_its_file(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", ROWS.schema)
    first = table.metadata_location
    table.append(ROWS)
    catalog.drop_table("a.t")
    assert catalog.register_table("a.u", table.metadata_location).scan().to_arrow() == ROWS
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table("a.u", first)
    assert len(catalog.register_table("a.u", first, overwrite=True).scan().to_arrow()) == 0


def test_a_staged_table_in_a_nested_namespace(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a.b.c")
    with catalog.create_table_transaction("a.b.c.t", ROWS.schema) as transaction:
        transaction.set_properties({"k": "v"})
        assert not catalog.table_exists("a.b.c.t")
    assert catalog.load_table("a.b.c.t").properties["k"] == "v"


def test_what_is_dropped_in_steps_does_not_exist(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    catalog.create_table("a.t", ROWS.schema)
    pending = catalog.store.tables.begin_drop("lake.ice.a.t")
    assert (catalog.table_exists("a.t"), catalog.view_exists("a.t"), catalog.list_tables("a")) == (False, False, [])
    with pytest.raises(ms.DropPending):
        catalog.load_table("a.t")
    with pytest.raises(ms.DropPending):
        catalog.create_table("a.t", ROWS.schema)
    pending.roll_back()
    assert catalog.table_exists("a.t")
    pending = catalog.store.schemas.begin_drop("lake.ice.a")
    assert (catalog.namespace_exists("a"), catalog.table_exists("a.t"), catalog.view_exists("a.t")) == (False,) * 3
    with pytest.raises(ms.DropPending):
        catalog.drop_namespace("a")
    pending.finish()


def test_views(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    version = ViewVersion.model_validate(
        {
            "schema-id": 0,
            "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}],
            "default-namespace": ("a",),
        }
    )
    view = catalog.create_view("a.v", Schema(NestedField(1, "id", IntegerType())), version, properties={"k": "v"})
    assert catalog.load_view("a.v") == view
    assert catalog.list_views("a") == [("a", "v")]
    assert catalog.view_exists("a.v")
    shown = catalog.store.views.load("lake.ice.a.v")
    assert shown.representations == (ms.SQL("spark", "SELECT 1 AS id"),)
    assert [c.name for c in shown.columns] == ["id"]
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view("a.v", Schema(NestedField(1, "id", IntegerType())), version)
    location = shown.properties["metadata_location"]
    catalog.drop_view("a.v")
    with pytest.raises(NoSuchViewError):
        catalog.load_view("a.v")
    with pytest.raises(NoSuchViewError):
        catalog.drop_view("a.v")
    assert catalog.register_view("a.w", location).metadata == view.metadata


def test_names_are_taken_literally(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace(("a.b",))
    table = catalog.create_table((("a.b"), "x y%_"), ROWS.schema)
    table.append(ROWS)
    assert catalog.list_tables(("a.b",)) == [("a.b", "x y%_")]
    assert catalog.load_table(("a.b", "x y%_")).scan().to_arrow() == ROWS
    assert not catalog.namespace_exists("a.b")


def test_without_a_uri_the_error_says_so() -> None:
    with pytest.raises(NoSuchPropertyException, match="uri="):
        load_catalog("x", **{"py-catalog-impl": "metastore.pyiceberg.MetastoreCatalog"})


def test_the_password_does_not_reach_the_file_systems(catalog: MetastoreCatalog) -> None:
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", ROWS.schema)
    assert "uri" not in table.io.properties


def test_a_new_database_gets_its_schema(postgres_databases: Databases, tmp_path: Path) -> None:
    url = postgres_databases.create_database()
    with load_catalog("x", **properties(url, tmp_path)) as catalog:
        catalog.create_namespace("a")
    with ms.open(url) as store:
        assert store.schemas.exists("lake.ice.a")
        assert store.verify() == []
    postgres_databases.drop_database(url)


def test_an_old_database_is_left_to_its_operator(postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE info SET format = 1")
    with pytest.raises(ms.MigrationNeeded):
        load_catalog("x", **properties(postgres_url, tmp_path))
