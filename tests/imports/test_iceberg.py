"""Import from a catalog of PyIceberg: namespaces, tables by their metadata files, again and again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="needs the extra [iceberg]")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

import metastore as ms
from metastore.imports import iceberg, places, root
from metastore.imports.iceberg import import_iceberg, open_catalog
from metastore.imports.notes import Notes
from metastore.pyiceberg import MetastoreCatalog
from metastore.secrets.keyring import new_key
from metastore.secrets.names import MASK
from tests.cli.test_cli import here

pytestmark = pytest.mark.one_in(3)


@pytest.fixture
def source(tmp_path: Path) -> Catalog:
    properties = {"uri": f"sqlite:///{tmp_path}/ice.db", "warehouse": f"file://{tmp_path}/data", "type": "sql"}
    catalog = load_catalog("source", **properties)
    catalog.create_namespace("eu", {"owner": "ann"})
    catalog.create_namespace(("eu", "deep"))
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    for name in (("eu", "orders"), ("eu", "deep", "items")):
        catalog.create_table(name, schema=rows.schema).append(rows)
    return catalog


def test_tables_keep_their_snapshots_and_follow_new_ones(url: str, source: Catalog, tmp_path: Path) -> None:
    done = import_iceberg(url, source, "lake.ice")
    assert (done.namespaces, done.written, done.left, done.failures) == (2, 2, 0, [])
    again = import_iceberg(url, source, "lake.ice")
    assert (again.written, again.left) == (0, 2)
    source.load_table(("eu", "orders")).append(pa.table({"id": [3], "name": ["c"]}))
    source.update_namespace_properties("eu", updates={"password": MASK, "note": MASK})  # as a server here shows it
    assert import_iceberg(url, source, "lake.ice").written == 1
    here = MetastoreCatalog("ice", uri=url, warehouse=f"file://{tmp_path}/data")
    try:
        assert here.load_table(("eu", "orders")).scan().to_arrow().num_rows == 3
        assert here.load_table(("eu", "deep", "items")).scan().to_arrow().num_rows == 2
        assert here.load_namespace_properties("eu") == {"owner": "ann", "note": MASK}
        assert here.store.tables.load("lake.ice.eu.orders").columns[1].type == "string"
        assert list(here.store.verify()) == []
    finally:
        here.close()


def test_what_was_committed_and_made_here_stays(url: str, source: Catalog, tmp_path: Path) -> None:
    import_iceberg(url, source, "lake.ice")
    rows, orders, items = pa.table({"id": [3], "name": ["c"]}), ("eu", "orders"), ("eu", "deep", "items")
    here = MetastoreCatalog("ice", uri=url, warehouse=f"file://{tmp_path}/data")
    try:
        here.load_table(orders).append(rows)
        here.update_namespace_properties("eu", updates={"mine": "yes"})
        here.store.tables.alter("lake.ice.eu.deep.items", ms.SetComment("mine"))
        done = import_iceberg(url, source, "lake.ice")
        assert (done.written, done.left, done.failures) == (0, 2, [])
        source.load_table(orders).append(rows)
        source.load_table(items).append(rows)
        made = here.create_table(("eu", "made"), schema=rows.schema)
        source.create_table(("eu", "made"), schema=rows.schema)
        done = import_iceberg(url, source, "lake.ice")
        assert (done.written, done.left) == (1, 0)
        reasons = [one.partition(";")[0] for one in done.failures]
        assert reasons == [
            f"table eu.{name}: it was changed both here and in the other catalog" for name in ("made", "orders")
        ]
        assert [here.load_table(one).scan().to_arrow().num_rows for one in (orders, items)] == [3, 3]
        assert here.load_table(("eu", "made")).metadata.table_uuid == made.metadata.table_uuid
        assert here.load_namespace_properties("eu") == {"owner": "ann", "mine": "yes"}
        source.drop_table(items)
        source.create_table(items, schema=rows.schema)  # it was only imported here: it may follow
        assert import_iceberg(url, source, "lake.ice").written == 1
        with pytest.raises(CommitFailedException, match="another metadata file by now"):
            here.register_table(items, made.metadata_location, overwrite=True, replaces=made.metadata_location)
        pointer = here.metadata_location(("eu", "made"))
        here.drop_table(("eu", "made"))
        with pytest.raises(NoSuchTableError):  # it was dropped meanwhile: it is not made again
            here.register_table(("eu", "made"), made.metadata_location, overwrite=True, replaces=pointer)
    finally:
        here.close()


def test_what_was_dropped_renamed_moved_and_taken_back_here_stays(url: str, source: Catalog) -> None:
    rows = pa.table({"id": [3], "name": ["c"]})
    for name in ("gone", "old", "moved", "back"):
        source.create_table(("eu", name), schema=rows.schema)
    source.create_namespace("us")
    source.create_table(("us", "t"), schema=rows.schema)
    import_iceberg(url, source, "lake.ice")
    with ms.open(url, principal="ann") as store:
        imported = store.position()
        pointer = store.tables.load("lake.ice.eu.back").properties["metadata_location"]
        for name in ("old", "back"):
            source.load_table(("eu", name)).append(rows)
        assert import_iceberg(url, source, "lake.ice").written == 2
        store.revert("lake.ice.eu.back", to=imported)
        store.tables.drop("lake.ice.eu.gone")
        renamed = store.tables.rename("lake.ice.eu.old", "new")
        store.tables.rename("lake.ice.eu.moved", ("lake", "ice", "eu", "deep", "moved"))
        store.schemas.rename("lake.ice.us", "usa")
        store.schemas.alter("lake.ice.eu", ms.SetProperty("owner", "bob"))
        paths = sorted(table.path for table in store.find("lake", kind="table"))
        done = import_iceberg(url, source, "lake.ice")
        assert (done.written, done.failures) == (0, [])
        source.load_table(("eu", "old")).append(rows)
        source.create_table(("us", "later"), schema=rows.schema)
        done = import_iceberg(url, source, "lake.ice")
        assert (done.written, done.failures) == (2, [])
        assert sorted(table.path for table in store.find("lake", kind="table")) == [
            *paths[:-1],
            "lake.ice.usa.later",
            paths[-1],
        ]
        assert store.tables.load(renamed).version == renamed.version + 1  # it follows under its new name
        assert store.tables.load("lake.ice.eu.back").properties["metadata_location"] == pointer
        assert store.schemas.load("lake.ice.eu").properties["owner"] == "bob"
        store.schemas.drop("lake.ice.usa", cascade=True)
        assert import_iceberg(url, source, "lake.ice").written == 0
        assert not store.schemas.exists("lake.ice.us")


def test_what_stands_in_the_way_here_is_named_and_stops_nothing(url: str, source: Catalog) -> None:
    rows = pa.table({"id": [3], "name": ["c"]})
    source.create_table(("eu", "old"), schema=rows.schema)
    import_iceberg(url, source, "lake.ice")
    with ms.open(url, principal="ann") as store:
        store.schemas.rename("lake.ice.eu", "us")
        source.create_table(("eu", "later"), schema=rows.schema)
        assert import_iceberg(url, source, "lake.ice").written == 1
        store.tables.rename("lake.ice.us.later", "renamed")  # it was made below the name that the schema has here
        store.tables.drop(store.tables.rename("lake.ice.us.old", "new"))
        source.create_table(("eu", "new"), schema=rows.schema)  # another one than what was dropped under this name
        source.create_namespace("us")
        source.create_table(("us", "orders"), schema=rows.schema)
        store.schemas.alter("lake.ice.us", ms.SetProperty("owner", "bob"))
        source.update_namespace_properties("eu", updates={"more": "1"})
        pointer = store.tables.load("lake.ice.us.orders").properties["metadata_location"]
        taken = "schema us: lake.ice.us was imported under another name; rename it, and import again"
        for written in (1, 0):
            done = import_iceberg(url, source, "lake.ice")
            assert (done.written, done.failures) == (written, [taken])
        assert store.tables.load("lake.ice.us.orders").properties["metadata_location"] == pointer
        assert dict(store.schemas.load("lake.ice.us").properties) == {"owner": "bob", "more": "1"}
        assert list(store.tables.names("lake.ice.us")) == ["new", "orders", "renamed"]
        source.load_table(("eu", "later")).append(rows)
        assert import_iceberg(url, source, "lake.ice").written == 1
        source.load_table(("eu", "orders")).append(rows)
        pending = store.tables.begin_drop("lake.ice.us.new")
        done = import_iceberg(url, source, "lake.ice")
        assert (done.written, [one.partition(": ")[0] for one in done.failures]) == (1, ["schema us", "table eu.new"])
        pending.roll_back()
        store.tables.drop("lake.ice.us.new")
        assert import_iceberg(url, source, "lake.ice").written == 0
        store.tables.purge(next(store.tables.dropped("lake.ice.us")))
        assert import_iceberg(url, source, "lake.ice").written == 1  # so one takes what is there


@pytest.mark.parametrize("noted", [False, True], ids=["by history", "by notes"])
def test_a_name_that_people_gave_to_another_table_makes_nothing_again(
    sqlite_url: str, source: Catalog, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    if not noted:  # an older release has made the tables, or the import was killed before it wrote its notes
        monkeypatch.setattr(Notes, "write", lambda *_: None)
    rows = pa.table({"id": [3], "name": ["c"]})
    for name in ("a", "b", "c", "d", "away"):
        source.create_table(("eu", name), schema=rows.schema)
    gone = [f"n{number}" for number in range(6)]
    for name in gone:
        source.create_namespace(name)
    source.create_table(("n0", "t"), schema=rows.schema)
    import_iceberg(sqlite_url, source, "lake.ice")
    with ms.open(sqlite_url, principal="ann") as store:
        for name in gone:
            store.schemas.drop(f"lake.ice.{name}", cascade=True)
        store.schemas.create("lake.ice.n0")  # what was below the dropped one stays dropped
        store.metalakes.create("archive")
        store.catalogs.create("archive.c", type="relational")
        store.schemas.create("archive.c.s")
        store.tables.rename("lake.ice.eu.away", ("archive", "c", "s", "away"))
        store.tables.drop("lake.ice.eu.b")
        a = store.tables.rename("lake.ice.eu.a", "b")
        d = store.tables.rename("lake.ice.eu.d", "swapped")
        c = store.tables.rename("lake.ice.eu.c", "d")
        d = store.tables.rename(d, "c")
        paths = sorted(table.path for table in store.find(kind="table"))
        for name in ("a", "b", "c"):
            source.load_table(("eu", name)).append(rows)
        asked, first = list[str](), places._first_place

        def counted(manager: Any, entity: ms.Entity) -> tuple[str, ...]:
            asked.append(entity.path)
            return first(manager, entity)

        monkeypatch.setattr(places, "_first_place", counted)
        done = import_iceberg(sqlite_url, source, "lake.ice")
        assert (done.written, done.failures) == (2, [])
        assert sorted(table.path for table in store.find(kind="table")) == paths
        assert [store.tables.load(one).version - one.version for one in (a, c, d)] == [1, 1, 0]
        several = sum(path.startswith("lake.ice.n") for path in asked)
        assert several == (0 if noted else len(gone))  # and not the square of it


def test_an_import_finds_its_place_and_tables_wherever_people_put_them(sqlite_url: str, source: Catalog) -> None:
    rows = pa.table({"id": [3], "name": ["c"]})
    source.create_namespace("us")
    for name in ("moved", "cascade", "kept"):
        source.create_table(("us", name), schema=rows.schema)
    import_iceberg(sqlite_url, source, "lake.ice")
    with ms.open(sqlite_url, principal="ann") as store:
        store.tables.drop(store.tables.rename("lake.ice.us.moved", ("lake", "ice", "eu", "moved")))
        store.schemas.create("lake.ice.mine")
        store.tables.rename("lake.ice.us.cascade", ("lake", "ice", "mine", "cascade"))
        store.schemas.drop("lake.ice.mine", cascade=True)
        before = store.position()
        source.create_table(("us", "late"), schema=rows.schema)
        assert import_iceberg(sqlite_url, source, "lake.ice").written == 1
        store.tables.rename("lake.ice.us.late", ("lake", "ice", "eu", "late"))
        store.revert("lake", to=before)  # it drops the table, and keeps the import's note
        store.schemas.rename("lake.ice.us", "usa")
        kept = store.tables.rename("lake.ice.usa.kept", ("lake", "ice", "eu", "kept"))
        store.schemas.rename("lake.ice.usa", "asu")
        store.catalogs.rename("lake.ice", "cold")
        store.metalakes.rename("lake", "pond")
        store.users.create("pond.bob")
        store.catalogs.create("pond.other", type="relational")
        store.owners.set("pond.other", "pond.bob")
        kinds = {one.kind for one in store.as_user("bob").changes()}
        assert ("origin" in kinds, "catalog" in kinds) == (False, True)  # a note tells of what bob does not see
        source.load_table(("us", "kept")).append(rows)
        source.create_table(("us", "later"), schema=rows.schema)
        for written in (2, 0):
            done = import_iceberg(sqlite_url, source, "lake.ice")
            assert (done.written, done.failures) == (written, [])
        paths = sorted(table.path for table in store.find(kind="table"))
        assert paths == [f"pond.cold.{one}" for one in ("asu.later", "eu.deep.items", "eu.kept", "eu.orders")]
        assert store.tables.load(kept).version == kept.version + 1
        assert list(store.metalakes.names()) == ["pond"]
        store.metalakes.create("sea")
        store.catalogs.rename("pond.cold", ("sea", "cold"))
        assert [import_iceberg(sqlite_url, source, "lake.ice").written for _ in range(2)] == [0, 0]
        store.catalogs.rename("sea.cold", ("pond", "cold"))
        store.metalakes.drop("sea")
        assert list(store.metalakes.names()) == ["pond"]
        assert import_iceberg(sqlite_url, source, "pond.cold").written == 0  # it is the same place
        store.catalogs.drop("pond.cold", cascade=True)
        for into in ("lake.ice", "pond.cold"):
            with pytest.raises(ms.EntityNotFound, match="restore it, purge it, or name another place"):
                import_iceberg(sqlite_url, source, into)
        store.metalakes.drop("pond", cascade=True)
        with pytest.raises(ms.EntityNotFound, match="restore it, purge it, or name another place"):
            import_iceberg(sqlite_url, source, "lake.ice")
        assert list(store.find(kind="table")) == []
        store.metalakes.purge(next(store.metalakes.dropped()))
        assert import_iceberg(sqlite_url, source, "lake.ice").written == 7
        assert list(store.verify()) == []


def test_names_that_are_one_here_do_not_take_turns(sqlite_url: str, source: Catalog) -> None:
    rows = pa.table({"id": [3], "name": ["c"]})
    source.create_namespace("us")
    for names in (("us", "Orders"), ("us", "orders"), ("us", "cafe\u0301"), ("us", "caf\u00e9"), ("EU", "t")):
        source.create_table(names, schema=rows.schema)
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational", provider="lakehouse-iceberg", fold_case=True)
        seen = []
        for _ in range(3):
            done = import_iceberg(sqlite_url, source, "lake.ice")
            made = {one.path: one.properties["metadata_location"] for one in store.find("lake", kind="table")}
            seen.append((sorted(done.failures), made, store.schemas.load("lake.ice.eu").version))
        assert seen[0] == seen[1] == seen[2]
        named = [one.partition(":")[0].lower() for one in seen[0][0]]
        assert named == ["schema eu", "table us.cafe\u0301", "table us.orders"]
        # nor does one get what was made for another that is gone there
        for names in (("us", "Orders"), ("EU", "t")):
            source.drop_table(names)
        source.drop_namespace("EU")
        done = import_iceberg(sqlite_url, source, "lake.ice")
        assert (done.written, sorted(done.failures)) == (0, seen[0][0])
        assert {one.path: one.properties["metadata_location"] for one in store.find("lake", kind="table")} == seen[0][1]
        store.tables.rename("lake.ice.us.orders", "older")
        assert import_iceberg(sqlite_url, source, "lake.ice").written == 1


def test_a_namespace_that_is_dropped_there_meanwhile_stops_nothing(
    sqlite_url: str, source: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.create_namespace("us")
    load = source.load_namespace_properties

    def meanwhile(namespace: Any) -> Any:
        if source.namespace_exists("us"):
            source.drop_namespace("us")
        return load(namespace)

    monkeypatch.setattr(source, "load_namespace_properties", meanwhile)
    done = import_iceberg(sqlite_url, source, "lake.ice")
    assert (done.namespaces, done.written, done.failures) == (2, 2, [])


def test_an_encrypted_property_follows_until_people_change_it(
    sqlite_url: str, source: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="needs the extra [secrets]")
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        secret = {"metastore.secret-properties": "pass*"}
        store.catalogs.create("lake.ice", type="relational", provider="lakehouse-iceberg", properties=secret)
        seen = []
        for there in ("a", "a", "b", "b", "c", "d"):
            if there == "d":
                store.schemas.alter("lake.ice.eu", ms.SetProperty("password", "mine"))
            source.update_namespace_properties("eu", updates={"password": there})
            import_iceberg(sqlite_url, source, "lake.ice")
            schema = store.schemas.load("lake.ice.eu")
            seen.append((schema.version, store.reveal(schema, "password")))
        assert seen == [(1, "a"), (1, "a"), (2, "b"), (2, "b"), (3, "c"), (4, "mine")]


def test_one_import_at_a_time_goes_into_a_place(
    sqlite_url: str, source: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one waits, or is refused; so it makes nothing again that the first one made and people dropped."""
    monkeypatch.setattr(root, "PATIENCE", 0.05)
    register, ran = MetastoreCatalog.register_table, list[bool]()

    def meanwhile(here: MetastoreCatalog, *args: Any, **kwargs: Any) -> Any:
        if not ran:
            ran.append(True)
            with pytest.raises(ms.LeaseHeld, match="import iceberg into"):
                import_iceberg(sqlite_url, source, "lake.ice")
        return register(here, *args, **kwargs)

    monkeypatch.setattr(iceberg, "_READERS", 1)
    monkeypatch.setattr(MetastoreCatalog, "register_table", meanwhile)
    done = import_iceberg(sqlite_url, source, "lake.ice")
    assert (ran, done.written, done.failures) == ([True], 2, [])
    source.load_table(("eu", "orders")).append(pa.table({"id": [3], "name": ["c"]}))
    with ms.open(sqlite_url) as store:

        def broken(here: MetastoreCatalog, *args: Any, **kwargs: Any) -> Any:
            (held,) = store.leases.list()
            store.leases.break_(held.name)  # as if this process had slept while another import ran
            return register(here, *args, **kwargs)

        monkeypatch.setattr(MetastoreCatalog, "register_table", broken)
        before = store.tables.load("lake.ice.eu.orders")
        with pytest.raises(ms.LeaseLost):
            import_iceberg(sqlite_url, source, "lake.ice")
        assert store.tables.load(before) == before


def test_a_damaged_table_is_named_and_stops_nothing(url: str, source: Catalog) -> None:
    Path(source.load_table(("eu", "orders")).metadata_location.removeprefix("file://")).unlink()
    done = import_iceberg(url, source, "lake.ice")
    assert (done.written, len(done.failures)) == (1, 1)
    assert done.failures[0].startswith("table eu.orders: ")


def test_a_damaged_note_is_named(sqlite_url: str, source: Catalog) -> None:
    import_iceberg(sqlite_url, source, "lake.ice")
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as raw:
        last = "SELECT max(id) FROM owned WHERE kind = 'origin'"
        raw.execute(f'UPDATE owned SET doc = \'{{"key": "5", "values": {{}}}}\' WHERE id = ({last})')
    raw.close()
    with pytest.raises(ms.UnreadableRow, match="origin"):
        import_iceberg(sqlite_url, source, "lake.ice")


def test_wrong_arguments_are_refused(url: str, source: Catalog) -> None:
    with pytest.raises(ms.InvalidArgument):
        import_iceberg(url, source, "lake")
    with pytest.raises(ms.InvalidArgument):
        open_catalog("no-such-catalog", {})


def test_the_command_imports_a_catalog_and_names_what_it_cannot_read(
    sqlite_url: str, source: Catalog, tmp_path: Path
) -> None:
    options = ("type=sql", f"warehouse=file://{tmp_path}/data", "name=source")
    named = ["import", "iceberg", "--from", f"sqlite:///{tmp_path}/ice.db", "--into", "lake.ice"]
    named += [word for option in options for word in ("--option", option)]
    done = here(sqlite_url, *named)
    assert done.returncode == 0, done.stderr
    assert "2 namespaces, 2 written, 0 left as they were." in done.stdout
    other = here(sqlite_url, *named, "--option", "name=another")  # a SQL catalog shows what is under its name
    assert "0 namespaces, 0 written, 0 left as they were." in other.stdout
    Path(source.load_table(("eu", "orders")).metadata_location.removeprefix("file://")).unlink()
    again = here(sqlite_url, *named)
    assert again.returncode == 1
    assert "not imported: table eu.orders: " in again.stdout
    for wrong in (["--option", "no-equals-sign"], ["--into", "lake"], ["--if-exists", "replace"]):
        refused = here(sqlite_url, *named, *wrong)
        assert (refused.returncode, refused.stdout) == (1, "")
