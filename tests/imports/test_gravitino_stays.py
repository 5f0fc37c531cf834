"""What people made here stays, whatever an import from Gravitino brings; and no damaged row ends an import."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import sqlalchemy as sa

import metastore as ms
from metastore.exports.gravitino import export_gravitino
from metastore.imports.gravitino import Report, follow, import_gravitino
from metastore.imports.gravitino import run as importing
from metastore.imports.gravitino.follow import enabled_to_write
from metastore.imports.gravitino.target import Contents, contents_of_store
from tests.imports.gravitino_tables import VERSIONS, create_tables
from tests.imports.gravitino_world import World
from tests.imports.test_gravitino import T, world

pytestmark = pytest.mark.one_in(3)

NEWEST = VERSIONS[-1]
OFF = {"metalake_id": 1, "catalog_id": 11, "schema_id": 110}


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gravitino.db"


def run(url: str, source: str, tmp_path: Path) -> Report:
    report = import_gravitino(url, source, file=tmp_path / "import.jsonl")
    with ms.open(url) as store:
        assert list(store.verify()) == []
    return report


def test_what_was_made_here_keeps_its_name(sqlite_url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "other")
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        own = [store.tables.create("lake.sales.eu.mine", comment="my own"), store.schemas.create("lake.sales.own")]
        own += [store.tables.create("lake.sales.own.t"), store.tags.create("lake.mine")]
    with world(source) as there:
        there.table(1002, "mine")
        there.set("table_meta", {"table_id": 1001}, table_name="mine")
        there.add("schema_meta", metalake_id=1, catalog_id=10, schema_id=150, schema_name="own", properties={})
        there.table(1003, "t", schema_id=150)
        there.table(1004, "u", schema_id=150)
        there.add("tag_meta", metalake_id=1, tag_id=59, tag_name="mine", tag_comment="", properties={})
        there.add("tag_relation_meta", tag_id=59, metadata_object_id=1000, metadata_object_type="TABLE")
        there.table(1005, "new")
    for gone in (False, True):
        if gone:
            with world(source) as there:
                there.set("table_meta", {"table_id": 1002}, deleted_at=9)
                there.set("schema_meta", {"schema_id": 150}, deleted_at=9)
                there.set("tag_meta", {"tag_id": 59}, deleted_at=9)
        report = run(sqlite_url, source, tmp_path)
        assert (report.same, report.problems()["taken"]) == (True, 1 if gone else 4)
        with ms.open(sqlite_url) as store:
            assert [store.manager(one.kind).load(one) for one in own] == own
            assert sorted(store.tables.names("lake.sales.eu")) == ["mine", "new", "orders", "other"]
            assert list(store.tables.names("lake.sales.own")) == ["t"]


def test_what_is_made_here_while_it_runs_stays(
    sqlite_url: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "gone")
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.table(1002, "mine")
        there.set("table_meta", {"table_id": 1001}, deleted_at=9)
    own = []
    with ms.open(sqlite_url) as store, monkeypatch.context() as patch:

        def meanwhile(*args: Any) -> None:
            own.append(store.tables.create("lake.sales.eu.mine", comment="my own"))
            store.tables.rename("lake.sales.eu.gone", "lake.sales.eu.kept")
            own.append(store.tables.create("lake.sales.eu.gone"))
            follow.drop_the_gone(*args)

        patch.setattr(importing, "drop_the_gone", meanwhile)
        with pytest.raises(
            ms.EntityAlreadyExists, match=r"another call created lake.sales.eu.mine while the import ran"
        ):
            run(sqlite_url, source, tmp_path)
    assert run(sqlite_url, source, tmp_path).problems() == {"taken": 1}
    with ms.open(sqlite_url) as store:
        assert [store.tables.load(one) for one in own] == own
        assert sorted(store.tables.names("lake.sales.eu")) == ["gone", "mine", "orders"]


def test_one_import_at_a_time_follows(
    sqlite_url: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second one makes again what the first one made and people dropped since."""
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "gone")
        there.table(1002, "old")
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.set("table_meta", {"table_id": 1001}, deleted_at=9)
        there.set("table_meta", {"table_id": 1002}, table_name="moved")
        there.table(1003, "new")
    monkeypatch.setattr(importing, "PATIENCE", 0.05)

    def meanwhile(*args: Any) -> None:
        with pytest.raises(ms.LeaseHeld, match="import gravitino"):
            import_gravitino(sqlite_url, source, file=tmp_path / "second.jsonl")
        with ms.open(sqlite_url) as store:
            assert store.leases.break_("import gravitino")  # as if this process had slept for long
        follow.drop_the_gone(*args)

    monkeypatch.setattr(importing, "drop_the_gone", meanwhile)
    with pytest.raises(ms.LeaseLost):
        run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        assert sorted(store.tables.names("lake.sales.eu")) == ["gone", "old", "orders"]
        monkeypatch.undo()
        unlink, held = Path.unlink, list[list[str]]()

        def noting(path: Path, missing_ok: bool = False) -> None:
            if path.name == "import.jsonl":  # the next import may write it as soon as this one's turn is over
                held.append([one.name for one in store.leases.list()])
            unlink(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", noting)
        run(sqlite_url, source, tmp_path)
        assert held == [["import gravitino"]]


@pytest.mark.parametrize("older", [False, True])
def test_a_copy_of_what_was_imported_is_made_here(
    sqlite_url: str, source: str, tmp_path: Path, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``older``: a release before this one made the copy, which has the note of the import too."""
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "gone")
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        store.export_to(tmp_path / "eu.jsonl", "lake.sales.eu")
        store.schemas.create("lake.sales.archive")
        with monkeypatch.context() as before:
            if older:
                before.setattr("metastore.transfer.importer._Importer._keeps_origin", lambda *_: True)
            store.import_from(tmp_path / "eu.jsonl", into="lake.sales.archive")
        store.tables.alter("lake.sales.archive.eu.gone", ms.SetComment("kept"))
        own = [store.tables.load(f"lake.sales.archive.eu.{name}") for name in ("gone", "orders")]
    assert run(sqlite_url, source, tmp_path).same
    with world(source) as there:
        there.set("table_meta", {"table_id": 1000}, table_name="moved")
        there.set("table_meta", {"table_id": 1001}, deleted_at=9)
    report = run(sqlite_url, source, tmp_path)
    assert (report.same, report.renamed, report.removed) == (True, 1, 1)
    assert run(sqlite_url, source, tmp_path).written == 0
    with ms.open(sqlite_url) as store:
        assert [store.tables.load(one) for one in own] == own
        assert list(store.tables.names("lake.sales.eu")) == ["moved"]


def test_what_is_being_dropped_in_steps_comes_back_as_it_was(sqlite_url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.set("table_meta", {"table_id": 1000}, table_name="moved")
    with ms.open(sqlite_url) as store:
        drop = store.tables.begin_drop(T)
        with pytest.raises(ms.DropPending, match=r"is dropping lake.sales.eu.orders in steps"):
            run(sqlite_url, source, tmp_path)
        drop.roll_back()
        before = store.tables.load(T)
        assert run(sqlite_url, source, tmp_path).renamed == 1
        assert store.tables.load("lake.sales.eu.moved").id == before.id


def test_a_column_that_is_being_dropped_in_steps_is_not_seen_again(
    sqlite_url: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(source, NEWEST) as there:
        there.fill()
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.set("table_column_version_info", {"table_id": 1000}, column_comment="there")
    drops = []
    with ms.open(sqlite_url) as store:

        def meanwhile(*args: Any) -> None:
            drops.append(store.tables.begin_drop(T, column="address"))
            follow.drop_the_gone(*args)

        with monkeypatch.context() as patch:  # first one that begins while the import runs, then one before it
            patch.setattr(importing, "drop_the_gone", meanwhile)
            with pytest.raises(ms.DropPending, match=r"is dropping lake.sales.eu.orders.address in steps"):
                run(sqlite_url, source, tmp_path)
        with world(source) as there:
            there.set("table_meta", {"table_id": 1000}, table_name="moved")
        with pytest.raises(ms.DropPending):
            run(sqlite_url, source, tmp_path)
        assert [one.name for one in store.tables.load(T).columns] == ["id"]
        drops[0].roll_back()
        assert run(sqlite_url, source, tmp_path).renamed == 1
        assert [one.name for one in store.tables.load("lake.sales.eu.moved").columns] == ["id", "address"]


def test_what_cannot_be_read_any_more_is_not_gone(sqlite_url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "other")
        there.column(1001, 5900, "c", 0)
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.set("table_column_version_info", {"column_id": 5900}, column_type="{not json")
        there.set("tag_meta", {"tag_id": 50}, allowed_values="{not json")
        there.set("role_meta_securable_object", {"role_id": 40}, privilege_names="[not json")
        there.table(1002, "new")
    report = run(sqlite_url, source, tmp_path)
    assert report.problems() == {"unreadable": 3}
    with ms.open(sqlite_url) as store:
        assert sorted(store.tables.names("lake.sales.eu")) == ["new", "orders", "other"]
        assert [one.name for one in store.tags.on(T, inherited=False)] == ["pii"]
        assert [grant.privilege for grant in store.roles.grants("lake.reader")] == ["select_table"]


PLANTED = {"double": 6, "double_owner": 1, "unreadable": 26, "unknown": 1}


def plant(there: World) -> None:
    """Write rows twice, and rows that nobody can read."""
    lake, attached = {"metalake_id": 1}, {"metadata_object_id": 1000, "metadata_object_type": "TABLE"}
    there.table(1000, "orders twice")
    there.add("tag_relation_meta", tag_id=50, **attached)
    there.add("user_role_rel", user_id=20, role_id=40)
    there.owner(1000, "TABLE", 20)
    grant = {"role_id": 40, "metadata_object_id": 1000, "type": "TABLE", "privilege_names": ["SELECT_TABLE"]}
    there.add("role_meta_securable_object", **grant, privilege_conditions=["ALLOW"])
    there.add("role_meta_securable_object", **grant, privilege_conditions=[])
    there.add("role_meta_securable_object", **{**grant, "privilege_names": "{"}, privilege_conditions=["ALLOW"])
    there.add("role_meta_securable_object", **{**grant, "metadata_object_id": None}, privilege_conditions=["ALLOW"])
    statistic = {**lake, **attached, "statistic_value": "7"}
    there.add("statistic_meta", statistic_id=991, statistic_name="custom-rows", **statistic)
    there.add("statistic_meta", statistic_id=992, statistic_name="custom-x", **{**statistic, "statistic_value": "{"})
    there.add("statistic_meta", statistic_id=993, statistic_name="y", **{**statistic, "metadata_object_type": "SCHEMA"})
    there.table(1901, "no schema", schema_id=None)
    there.table(1902, "version", current_version=None)
    there.column(1902, 5901, "c", 0)
    there.set("table_column_version_info", {"column_id": 5901}, table_version=None)
    there.add("tag_meta", **lake, tag_id=None, tag_name="no id", tag_comment="", properties={})
    there.add("tag_meta", **lake, tag_id=51, tag_name="audit", tag_comment="", properties={}, audit_info="{")
    there.add("tag_meta", **lake, tag_id=52, tag_name="when", properties={}, audit_info={"createTime": 1e300})
    there.add("tag_meta", **lake, tag_id=53, tag_name="", tag_comment="", properties={})
    there.add("tag_relation_meta", tag_id=50, metadata_object_id=None, metadata_object_type="TABLE")
    for key, name, who in ((54, "early", {"createTime": "1960-01-01T00:00:00Z"}), (55, "half", {"creator": "\ud800"})):
        there.add("tag_meta", **lake, tag_id=key, tag_name=name, properties={}, audit_info=who)
    there.add("tag_meta", **lake, tag_id=56, tag_name="great", properties={"k": "x" * (1 << 20)})
    deep, deepest = "[" * 300 + "]" * 300, "[" * 100_000
    there.add("tag_meta", **lake, tag_id=57, tag_name="deep", tag_comment="", properties={}, audit_info=deepest)
    there.add("role_meta_securable_object", **{**grant, "privilege_names": deepest}, privilege_conditions=["ALLOW"])
    there.add("topic_meta", topic_id=1901, topic_name="deep", comment="", properties=deepest, **there.place())
    there.add("policy_meta", policy_id=61, policy_name="deep", policy_type="custom", **lake)
    there.add("policy_version_info", policy_id=61, version=1, content=f'{{"customRules": {deep}}}', **lake)
    there.add("statistic_meta", statistic_id=994, statistic_name="deep", **{**statistic, "statistic_value": deep})
    there.add("statistic_meta", statistic_id=995, statistic_name="two\nlines", **statistic)
    of_partition = {"table_id": 1000, "statistic_name": "n", "statistic_value": "7"}
    for name in ("two\nlines", "city=Zu\u0308rich"):  # a name that another file system decomposed is composed here
        there.add("partition_statistic_meta", **of_partition, partition_name=name)
    for name in "ab":  # each of them fits in a document, and not both
        great = {"statistic_name": name, "statistic_value": f'"{"x" * 600_000}"'}
        there.add("partition_statistic_meta", table_id=1000, partition_name="great", **great)
    there.set("topic_meta", {"topic_id": 1300}, audit_info='{"creator": "a\\u0000b"}')
    there.add("user_role_rel", user_id=20, role_id=None)
    there.owner(1000, "TABLE", None)  # type: ignore[arg-type]
    there.add("metalake_meta", metalake_id=1, metalake_name="twice", properties={})
    there.add("metalake_meta", metalake_id=None, metalake_name="none", properties={})


@pytest.mark.parametrize("follows", [False, True])
def test_damaged_and_doubled_rows_are_named_and_the_rest_comes_over(
    sqlite_url: str, source: str, tmp_path: Path, follows: bool
) -> None:
    with world(source, NEWEST) as there:
        _without_keys(there)
        there.fill()
    if follows:
        run(sqlite_url, source, tmp_path)
    with world(source) as there:
        plant(there)
    report = run(sqlite_url, source, tmp_path)
    assert (report.same, report.problems()) == (True, PLANTED), report.findings
    with ms.open(sqlite_url) as store:
        assert sorted(store.tags.names("lake")) == ["audit", "deep", "early", "half", "pii", "when"]
        assert "orders" in list(store.tables.names("lake.sales.eu"))
        assert store.statistics.of(T) == {"custom-rows": 5}
        assert store.statistics.of(T, partition="city=Z\u00fcrich") == {"n": 7}


def _without_keys(there: World) -> None:
    """Make the tables again without primary keys, as a damaged database has them."""
    there.metadata.drop_all(there.connection)
    for table in list(there.metadata.tables.values()):
        columns = [sa.Column(one.name, one.type) for one in table.columns]
        sa.Table(table.name, sa.MetaData(), *columns).create(there.connection)
    there.metadata = sa.MetaData()
    there.metadata.reflect(there.connection)


def test_what_gravitino_hides_is_named_without_its_value(sqlite_url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.set("catalog_meta", {"catalog_id": 10}, properties='{"jdbc-password": "hunter2", "jdbc-user": "app"}')
        there.set("model_version_info", {"version": 1}, model_version_properties='{"password": "hunter2"}')
    report = run(sqlite_url, source, tmp_path)
    assert [(one.problem, one.what) for one in report.findings] == [
        ("secret", "the property jdbc-password of the catalog lake.sales"),
        ("secret", "the property password of the model_version lake.sales.eu.churn.2"),
    ]
    assert "hunter2" not in str(report)


def test_what_has_no_place_here_is_named(sqlite_url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.set("schema_meta", {"schema_id": 100}, properties='{"in-use": "false", "k": "v"}')
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        assert dict(store.schemas.load("lake.sales.eu").properties) == {"in-use": "false", "k": "v"}


def test_a_disabled_catalog_is_enabled_only_if_something_below_it_changes(
    sqlite_url: str, source: str, tmp_path: Path
) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.add("schema_meta", **OFF, schema_name="below", properties={})
        there.add("topic_meta", topic_id=1301, topic_name="first", comment="", properties={}, **OFF)
        there.add("tag_relation_meta", tag_id=50, metadata_object_id=1301, metadata_object_type="TOPIC")
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        before = store.catalogs.load("lake.off")
    with world(source) as there:
        there.table(1001, "elsewhere")
        there.add("tag_meta", metalake_id=1, tag_id=51, tag_name="new", tag_comment="", properties={})
    assert run(sqlite_url, source, tmp_path).same
    with ms.open(sqlite_url) as store:
        assert store.catalogs.load("lake.off").version == before.version
        assert [one.action for one in store.catalogs.history("lake.off")] == ["create"]
    with world(source) as there:
        there.set("tag_relation_meta", {"metadata_object_id": 1301}, deleted_at=7)
    assert run(sqlite_url, source, tmp_path).removed == 1
    with ms.open(sqlite_url) as store:
        assert not store.catalogs.load("lake.off").in_use
        assert store.tags.on("lake.off.below.first", inherited=False) == []
        target = contents_of_store(store, ["lake"])
        with (
            store.leases.acquire("import gravitino", ttl=30.0) as lease,
            pytest.raises(ms.EntityNotFound),
            enabled_to_write(store, lease, Contents(target.names), target),
        ):
            fail_while_enabled(store)
        assert not store.catalogs.load("lake.off").in_use


def fail_while_enabled(store: ms.Store) -> None:
    assert store.catalogs.load("lake.off").in_use
    store.tables.load("lake.off.below.none")


@pytest.mark.parametrize("into", [None, "lake.sales.own"])
def test_no_import_takes_a_copy_whose_original_was_dropped_here(
    sqlite_url: str, source: str, tmp_path: Path, into: str | None
) -> None:
    """It is laid over a table that was made here, or is below another parent."""
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "mine")
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        store.schemas.create("lake.sales.own")
        imported = store.tables.load("lake.sales.eu.mine")
        store.export_to(tmp_path / "mine.jsonl", imported)
        store.tables.drop(imported)
        if into is None:
            store.tables.create(imported.path, comment="my own")
        store.import_from(tmp_path / "mine.jsonl", into=into, if_exists="return")
    with world(source) as there:
        there.set("table_meta", {"table_id": 1001}, deleted_at=9)
    assert run(sqlite_url, source, tmp_path).removed == 0
    with ms.open(sqlite_url) as store:
        assert store.tables.exists(imported.path if into is None else f"{into}.mine")


def test_a_table_that_comes_back_keeps_its_column_ids(sqlite_url: str, source: str, tmp_path: Path) -> None:
    """It was made here, and an export took it there."""
    path, back = "lake.sales.eu.mine", f"sqlite:///{tmp_path}/back.db"
    with world(source, NEWEST) as there, world(back, NEWEST):
        there.fill()
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        store.tables.create(path, columns=[ms.Column("old", "long"), ms.Column("a", "long"), ms.Column("b", "long")])
        before = [one.id for one in store.tables.alter(path, ms.DropColumn("old")).columns]
    assert export_gravitino(sqlite_url, back).whole
    run(sqlite_url, back, tmp_path)
    with ms.open(sqlite_url) as store:
        assert [one.id for one in store.tables.load(path).columns] == before == [2, 3]


def test_a_column_that_is_added_while_it_runs_is_not_another_one(
    sqlite_url: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(source, NEWEST) as there:
        there.fill()
        there.table(1001, "t")
        there.column(1001, 5011, "city", 0)
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.column(1001, 5012, "town", 1)

    def meanwhile(*_: Any) -> None:
        with ms.open(sqlite_url) as store:
            store.tables.alter("lake.sales.eu.t", ms.AddColumn("ssn", "string"))
            store.tags.create("lake.own")
            store.tags.attach("lake.sales.eu.t", "lake.own", column="ssn")

    with monkeypatch.context() as patch:
        patch.setattr(importing, "drop_the_gone", meanwhile)
        with pytest.raises(ms.EntityAlreadyExists, match=r"another call added columns to .*eu\.t while the import ran"):
            run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        assert [one.column for one in store.tags.targets("lake.own")] == ["ssn"]
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        assert [column.name for column in store.tables.load("lake.sales.eu.t").columns] == ["city", "town"]
        assert list(store.tags.targets("lake.own")) == []


@pytest.mark.each_run_on("sqlite")
def test_a_store_whose_metalake_was_dropped_takes_an_import(url: str, source: str, tmp_path: Path) -> None:
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.metalakes.disable("lake")
        store.metalakes.drop("lake")
    with world(source, NEWEST) as there:
        there.fill()
    assert run(url, source, tmp_path).same
    with ms.open(url) as store:
        assert store.tables.exists(T)


def test_all_is_read_at_one_instant_and_nobody_else_reads_the_journal(
    sqlite_url: str, postgres_url: str, tmp_path: Path
) -> None:
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        create_tables(connection, NEWEST)
        there = World(connection)
        there.fill()
        for number in range(1000):
            there.add("tag_meta", metalake_id=1, tag_id=2000 + number, tag_name=f"t{number}", properties={})
    modes = set()

    def meanwhile(step: str, _: float) -> None:
        if step == "restoring":
            modes.add(stat.S_IMODE((tmp_path / "import.jsonl").stat().st_mode))
            with engine.begin() as connection:
                World(connection).set("table_meta", {"table_id": 1000}, deleted_at=9)

    plain = postgres_url.replace("postgresql+psycopg", "postgresql")
    report = import_gravitino(sqlite_url, plain, file=tmp_path / "import.jsonl", progress=meanwhile)
    engine.dispose()
    assert (report.same, report.dropped, modes) == (True, 0, {0o600})
    with ms.open(sqlite_url) as store:
        assert (list(store.tables.names("lake.sales.eu")), list(store.tables.dropped("lake.sales.eu"))) == (
            ["orders"],
            [],
        )


@pytest.mark.parametrize(
    ("table", "wanted", "changed"),
    [
        ("partition_statistic_meta", {"table_id": 1000}, {"partition_name": "id=2"}),
        ("partition_statistic_meta", {"table_id": 1000}, {"table_id": 9999}),
        ("model_version_alias_rel", {"model_id": 1400}, {"model_version_alias": "other"}),
        ("model_version_alias_rel", {"model_id": 1400}, {"model_version": 0}),
        ("model_version_alias_rel", {"model_id": 1400}, {"deleted_at": 9}),
        ("job_template_meta", {"job_template_id": 70}, {"job_template_name": "tell"}),
    ],
)
def test_it_follows_what_is_renamed_and_gone_in_a_part(
    sqlite_url: str, source: str, tmp_path: Path, table: str, wanted: dict[str, Any], changed: dict[str, Any]
) -> None:
    """Of an entity that stays. The import ended with an error, or its contents differed for ever."""
    with world(source, NEWEST) as there:
        there.fill()
    run(sqlite_url, source, tmp_path)
    with world(source) as there:
        there.set(table, wanted, **changed)
    assert run(sqlite_url, source, tmp_path).same
    assert run(sqlite_url, source, tmp_path).written == 0


@pytest.mark.parametrize(
    ("table", "wanted", "changed", "there_is"),
    [
        ("schema_meta", {"schema_id": 100}, {"properties": "{"}, {"schema": 1}),
        ("catalog_meta", {"catalog_id": 10}, {"type": "odd"}, {"catalog": 1}),
        ("job_run_meta", {"job_run_id": 80}, {"job_template_id": None}, {"job": 0}),
    ],
)
def test_a_damaged_row_above_others_ends_no_import(
    sqlite_url: str,
    source: str,
    tmp_path: Path,
    table: str,
    wanted: dict[str, Any],
    changed: dict[str, Any],
    there_is: dict[str, int],
) -> None:
    """What lies below is left out with it, also where a role or a tag leads there."""
    with world(source, NEWEST) as there:
        _without_keys(there)
        there.fill()
        there.set(table, wanted, **changed)
    report = run(sqlite_url, source, tmp_path)
    assert {kind: report.counts.get(kind, 0) for kind in there_is} == there_is
    assert (report.same, report.problems()["unreadable"], report.counts["role"]) == (True, 1, 1)
