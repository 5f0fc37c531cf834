"""A database moves over and back: what is exported into Gravitino's tables is read there as it is here, or named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import sqlalchemy as sa

import metastore as ms
from metastore.exports.gravitino import ExportReport, export_gravitino
from tests.cli.test_cli import here
from tests.imports.gravitino_tables import VERSIONS, create_tables
from tests.imports.test_gravitino import UNUSABLE, T, run, world

pytestmark = [
    pytest.mark.each_run_on("postgres"),
    pytest.mark.one_in(3),
]  # what is written there is read through the managers

NEWEST = VERSIONS[-1]


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The address of the database that is imported."""
    return f"sqlite:///{tmp_path}/gravitino.db"


def empty(tmp_path: Path, version: int = NEWEST, name: str = "back.db") -> str:
    """Make Gravitino's tables, with nothing in them, and return their address."""
    url = f"sqlite:///{tmp_path}/{name}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        create_tables(connection, version)
    engine.dispose()
    return url


def rows(url: str, table: str) -> list[dict[str, Any]]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = [dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {table}")).mappings()]
    engine.dispose()
    return found


def moved(source: str, url: str, tmp_path: Path, version: int = NEWEST) -> tuple[str, ExportReport]:
    """Fill a database of Gravitino, import it, and export it into another one."""
    with world(source, version) as there:
        there.fill()
    run(url, source, tmp_path)
    back = empty(tmp_path, version)
    return back, export_gravitino(url, back)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_moves_over_and_back(url: str, source: str, tmp_path: Path, version: int) -> None:
    back, report = moved(source, url, tmp_path, version)
    assert report.findings == []
    assert report.whole
    assert not report.replaced
    here = run(f"sqlite:///{tmp_path}/first.db", source, tmp_path)
    there = run(f"sqlite:///{tmp_path}/second.db", back, tmp_path)
    assert there.target_hash == here.target_hash  # origins with ids, versions and audits included
    assert there.counts == here.counts == report.counts


def test_ids_of_both_sizes_go_into_one_table(sqlite_url: str, source: str, postgres_url: str, tmp_path: Path) -> None:
    """Imported tables keep their small ids, new ones get ids above 2^62; PostgreSQL tells the types of both apart."""
    with world(source, NEWEST) as there:
        there.fill()
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        for n in range(3):
            store.tables.create(f"lake.sales.fresh.t{n}", parents=True, columns=[ms.Column("a", "long")])
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        create_tables(connection, NEWEST)
    report = export_gravitino(sqlite_url, postgres_url)
    assert (report.findings, report.whole) == ([], True)
    with engine.connect() as connection:
        ids = list(connection.execute(sa.text("SELECT table_id FROM table_meta")).scalars())
    engine.dispose()
    assert {one >> 62 for one in ids} == {0, 1}


def test_the_id_that_gravitino_hides_among_properties_is_not_shown_and_goes_back(
    sqlite_url: str, source: str, tmp_path: Path
) -> None:
    hidden = {"gravitino.identifier": "gravitino.v1.uid100"}
    with world(source, NEWEST) as there:
        there.fill()
        there.set("schema_meta", {"schema_id": 100}, properties=json.dumps({"a": "b", **hidden}))
    run(sqlite_url, source, tmp_path)
    with ms.open(sqlite_url) as store:
        assert dict(store.schemas.load("lake.sales.eu").properties) == {"a": "b"}
    back = empty(tmp_path)
    assert export_gravitino(sqlite_url, back).whole
    (properties,) = [row["properties"] for row in rows(back, "schema_meta") if row["schema_id"] == 100]
    assert json.loads(properties) == {"a": "b", **hidden}


def test_what_was_changed_here_goes_back_with_its_ids(url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
    run(url, source, tmp_path)
    with ms.open(url, principal="eve") as store:
        store.tables.rename(T, "bookings")
        store.tables.alter("lake.sales.eu.bookings", ms.AddColumn("extra", "decimal(9,2)"), ms.DropColumn("address"))
        store.tables.alter("lake.sales.eu.bookings", ms.RenameColumn("id", "number"))
        store.schemas.create("lake.sales.made", comment="made here")
        store.filesets.create("lake.sales.made.files", type="external", locations={"a": "s3://a"})
        store.models.add_version("lake.sales.eu.churn", uris={"main": "s3://m/3"}, aliases=("next",))
        store.tags.create("lake.new")
        store.tags.attach("lake.sales.eu.bookings", "lake.new", column="extra")
        store.topics.drop("lake.sales.eu.events")
    back = empty(tmp_path)
    report = export_gravitino(url, back)
    assert report.findings == []
    (table,) = rows(back, "table_meta")
    assert (table["table_id"], table["table_name"], table["current_version"]) == (1000, "bookings", 5)
    assert '"lastModifier": "eve"' in table["audit_info"]
    assert '"creator": "ann"' in table["audit_info"]
    columns = {row["column_name"]: row["column_id"] for row in rows(back, "table_column_version_info")}
    assert columns["number"] == 5001  # it is the same column there
    assert set(columns) == {"number", "extra"}
    assert rows(back, "topic_meta") == []
    copy = f"sqlite:///{tmp_path}/copy.db"
    run(copy, back, tmp_path)
    with ms.open(copy) as store:
        assert [one.name for one in store.tags.on("lake.sales.eu.bookings", column="extra", inherited=False)] == ["new"]
        assert store.models.load_version("lake.sales.eu.churn", "next").uris == {"main": "s3://m/3"}
        assert store.filesets.load("lake.sales.made.files").created_by == "eve"


def test_what_a_later_import_wrote_keeps_the_names_of_those_who_did_it_there(
    url: str, source: str, tmp_path: Path
) -> None:
    with world(source, NEWEST) as there:
        there.fill()
    run(url, source, tmp_path)
    with world(source) as there:
        there.set("topic_meta", {"topic_id": 1300}, comment="changed there", current_version=7)
        there.add("topic_meta", topic_id=1301, topic_name="late", current_version=5, **there.place())
    run(url, source, tmp_path)
    with ms.open(url, principal="eve") as store:
        store.topics.alter("lake.sales.eu.late", ms.SetComment("and here"))
    back = empty(tmp_path)
    assert export_gravitino(url, back).findings == []
    first, second = sorted(rows(back, "topic_meta"), key=lambda row: str(row["topic_name"]))
    assert (first["topic_id"], first["current_version"]) == (1300, 7)
    assert '"lastModifier": "bob"' in first["audit_info"]
    assert (second["topic_id"], second["current_version"]) == (1301, 6)
    assert '"creator": "ann"' in second["audit_info"]
    assert '"lastModifier": "eve"' in second["audit_info"]


def strange(store: ms.Store) -> None:
    """Make what Gravitino has no place for."""
    store.metalakes.create("lake", properties={"in": "x"})
    store.catalogs.create("lake.c", type="relational", provider="hive", fold_case=True)
    store.tables.create("lake.c.s.deep.t", parents=True)
    store.tables.create(
        "lake.c.s.t",
        columns=[ms.Column("a", "struct<b: int>", comment="c" * 300), ms.Column("p", "string")],
        partitioning=["p"],
        location="s3://t",
    )
    store.partitions.create("lake.c.s.t", "p=1", values={"p": "1"})
    store.statistics.set("lake.c.s.t", {"custom-rows": 4})
    store.filesets.create("lake.c.s.nowhere")
    store.views.create("lake.c.s.v", representations=(ms.SQL("spark", "SELECT 1"),))
    store.tags.create("lake.pii")
    store.tags.attach("lake.c.s.t", "lake.pii", column="a.b")
    store.tags.attach("lake.c.s.nowhere", "lake.pii", kind="fileset")
    store.users.create("lake.ann", comment="a user")
    store.policies.create("lake.odd", type="system.mine", content={"x": 1})
    store.policies.create("lake.keep", type="custom", content={"days": 3})
    store.roles.create("lake.reader")
    store.roles.grant("lake.reader", "use_secret", "lake.c", kind="catalog")
    store.roles.grant("lake.reader", "use_catalog", "lake.c", kind="catalog")
    store.topics.create(("lake", "c", "s", "n" * 200))


def test_what_has_no_place_there_is_named(url: str, tmp_path: Path) -> None:
    with ms.open(url) as store:
        strange(store)
    back = empty(tmp_path)
    report = export_gravitino(url, back)
    assert not report.whole
    found = {f"{one.problem}: {one.what}" for one in report.findings}
    assert found == {
        "changed: catalog lake.c: fold_case",
        "changed: policy lake.keep: content, supports",
        "changed: role lake.reader: grant lake.c (allow:use_secret)",
        "changed: table lake.c.s.t: columns, partition p=1, tag_on of a.b lake.pii",
        "changed: user lake.ann: comment",
        "no_place: fileset lake.c.s.nowhere: it has no location, and a fileset has one there",
        "no_place: policy lake.odd: there is no type 'system.mine' of policies there",
        "no_place: schema lake.c.s.deep: a schema cannot be on level 4 there",
        "no_place: table lake.c.s.deep.t: a table cannot be on level 5 there",
        f"no_place: topic lake.c.s.{'n' * 200}: topic_name is too long for the column",
    }
    assert rows(back, "tag_relation_meta") == []
    (grant,) = rows(back, "role_meta_securable_object")
    assert grant["privilege_names"] == '["USE_CATALOG"]'
    run(f"sqlite:///{tmp_path}/copy.db", back, tmp_path)  # and what is there is sound


def test_a_user_in_a_group_is_in_no_role_there(sqlite_url: str, tmp_path: Path) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.groups.add(store.groups.create("lake.staff"), store.users.create("lake.ann"))
    back = empty(tmp_path)
    report = export_gravitino(sqlite_url, back)
    assert [one.what for one in report.findings] == ["user lake.ann: membership lake.staff"]
    assert rows(back, "user_role_rel") == []  # it had a role with the group's id


@pytest.mark.parametrize("version", [100, 120, 130])
def test_what_a_release_cannot_read_is_left_out_and_named(sqlite_url: str, tmp_path: Path, version: int) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", provider="hive")
        store.catalogs.create("lake.none", type="relational")
        store.schemas.create("lake.none.s")
        role, ann, tag = store.roles.create("lake.r"), store.users.create("lake.ann"), store.tags.create("lake.pii")
        for one in (ann, tag, store.catalogs.load("lake.c")):
            store.owners.set(one, ann)
        for word in ("create_tag", "create_view", "register_function", "register_model"):
            store.roles.grant(role, word, "lake", kind="metalake")
    back = empty(tmp_path, version)
    report = export_gravitino(sqlite_url, back)
    found = {one.what for one in report.findings}
    assert {"user lake.ann: owner lake.ann", "schema lake.none.s: its parent is left out"} <= found
    assert any("catalog lake.none: it has no provider" in one for one in found)
    owned = ["CATALOG", "TAG"] if version > 100 else ["CATALOG"]
    assert sorted(row["metadata_object_type"] for row in rows(back, "owner_meta")) == owned
    (grant,) = rows(back, "role_meta_securable_object")
    expected = {100: ["CREATE_MODEL"], 120: ["CREATE_TAG", "CREATE_VIEW", "REGISTER_MODEL"]}
    expected[130] = [*expected[120][:2], "REGISTER_FUNCTION", "REGISTER_MODEL"]
    assert json.loads(grant["privilege_names"]) == expected[version]


def test_an_encrypted_value_is_not_written_and_named(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="needs the extra [secrets]")
    from metastore.secrets.keyring import VARIABLE, new_key

    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        secret = {"metastore.secret-properties": "*password", "jdbc-password": "hush-hush", "token": ms.secret("env:T")}
        secret |= {"note": "secret:sealed:letters", "other": "secret: tell nobody"}
        store.catalogs.create("lake.c", type="model", provider="jdbc-mysql", properties=secret)
        store.models.create("lake.c.s.m", parents=True)
        secret = {"password": "hush", "token": ms.secret("env:T")}
        store.models.add_version("lake.c.s.m", uris={"unknown": "u"}, properties=secret)
    back = empty(tmp_path)
    report = export_gravitino(sqlite_url, back)
    assert {f"{one.what}: {one.done}" for one in report.findings if one.problem == "secret"} == {
        "catalog lake.c: the property 'jdbc-password' is encrypted here: left out; set it there",
        "catalog lake.c: the property 'token' refers to a secret: Gravitino reads it as a text",
        "model_version lake.c.s.m.1: the property 'password' is encrypted here: left out; set it there",
        "model_version lake.c.s.m.1: the property 'token' refers to a secret: Gravitino reads it as a text",
    }
    (version,) = rows(back, "model_version_info")
    assert json.loads(version["model_version_properties"]) == {"token": "secret:env:T"}
    (catalog,) = rows(back, "catalog_meta")
    assert "jdbc-password" not in catalog["properties"].replace("*password", "")
    assert catalog["properties"].count("sealed") == 1, "what only begins like a secret is a text as any other"


def test_a_database_that_is_not_empty_or_was_changed_is_refused(url: str, source: str, tmp_path: Path) -> None:
    back, _ = moved(source, url, tmp_path)
    with pytest.raises(ms.InvalidArgument, match="not empty"):
        export_gravitino(url, source)
    with world(back) as there:
        there.set("topic_meta", {"topic_id": 1300}, comment="by a server of Gravitino")
    with pytest.raises(ms.InvalidArgument, match="was changed since"):
        export_gravitino(url, back)
    assert rows(back, "topic_meta")[0]["comment"] == "by a server of Gravitino"
    run(url, back, tmp_path)
    with ms.open(url) as store:
        assert store.topics.load("lake.sales.eu.events").comment == "by a server of Gravitino"


def test_an_export_is_repeated_and_gives_the_same_ids(url: str, tmp_path: Path) -> None:
    with ms.open(url) as store:
        strange(store)
    back = empty(tmp_path)
    export_gravitino(url, back)
    tables = ("catalog_meta", "table_meta", "table_column_version_info", "statistic_meta")
    before = [rows(back, table) for table in tables]
    with ms.open(url) as store:
        store.tables.create("lake.c.s.more")
    report = export_gravitino(url, back)
    assert report.replaced
    after = [rows(back, table) for table in tables]
    assert len(after[1]) == 2
    assert [row["table_id"] for row in before[1]] == [after[1][0]["table_id"]]
    ids = [[(row.get("catalog_id"), row.get("column_id"), row.get("statistic_id")) for row in one] for one in before]
    assert ids[2] == [(row["catalog_id"], row["column_id"], None) for row in after[2]]
    assert ids[3] == [(None, None, row["statistic_id"]) for row in after[3]]


def test_what_changes_there_after_an_export_comes_back(url: str, tmp_path: Path) -> None:
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", provider="hive")
        made = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "int")])
        store.tables.create("lake.c.s.deep.t", parents=True)
    back = empty(tmp_path)
    export_gravitino(url, back)
    with world(back) as there:
        there.set(
            "table_meta", {"table_id": rows(back, "table_meta")[0]["table_id"]}, current_version=2, last_version=2
        )
        (version,) = rows(back, "table_version_info")
        there.set("table_version_info", {"version": 1}, deleted_at=5)
        there.add("table_version_info", **{**version, "version": 2, "comment": "by a server of Gravitino"})
    run(url, back, tmp_path)
    with ms.open(url) as store:
        table = store.tables.load("lake.c.s.t")
        assert (table.id, table.comment) == (made.id, "by a server of Gravitino")
        assert store.tables.exists("lake.c.s.deep.t")  # what has no place there stays here


def test_a_copy_with_the_same_origin_gets_ids_of_its_own(url: str, source: str, tmp_path: Path) -> None:
    with world(source, NEWEST) as there:
        there.fill()
    run(url, source, tmp_path)
    with ms.open(url) as store:
        store.export_to(tmp_path / "us.jsonl", "lake.sales.eu")
        store.catalogs.create("lake.copy", type="relational", provider="hive")
        store.import_from(tmp_path / "us.jsonl", into="lake.copy")
    back = empty(tmp_path)
    export_gravitino(url, back)
    ids = [row["table_id"] for row in rows(back, "table_meta")]
    assert 1000 in ids
    assert len(set(ids)) == len(ids) == 2
    columns = [row["column_id"] for row in rows(back, "table_column_version_info")]
    assert len(set(columns)) == len(columns) == 4


@pytest.mark.parametrize("bad", ["nothing://x", "sqlite:////none/such.db", "h2:/some.sql", "script.sql", *UNUSABLE])
def test_a_wrong_address_is_refused_without_its_password(sqlite_url: str, bad: str) -> None:
    with pytest.raises(ms.InvalidArgument) as refused:
        export_gravitino(sqlite_url, bad)
    assert "hunter2" not in str(refused.value)


def test_a_database_without_the_tables_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(ms.InvalidArgument, match="create Gravitino's tables first"):
        export_gravitino(sqlite_url, f"sqlite:///{tmp_path}/nothing.db")


def test_a_built_in_policy_moves_over_and_back(sqlite_url: str, tmp_path: Path) -> None:
    content = {"minDataFileMse": 1000, "rewriteOptions": {}}
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.policies.create("lake.compact", type="system_iceberg_compaction", content=content)
    back = empty(tmp_path)
    assert export_gravitino(sqlite_url, back).findings == []
    (version,) = rows(back, "policy_version_info")
    assert "supportedObjectTypes" not in version["content"]  # Gravitino gives up at a field that it does not know
    copy = f"sqlite:///{tmp_path}/copy.db"
    assert run(copy, back, tmp_path).findings == []
    with ms.open(copy) as store:
        assert store.policies.load("lake.compact").content == content


def test_the_command_names_what_is_not_there_and_says_so_to_scripts(sqlite_url: str, tmp_path: Path) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake", comment="kept")
    back = empty(tmp_path)
    done = here(sqlite_url, "export", "gravitino", "--to", back)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Wrote 1 metalake, in 1 rows." in done.stdout
    assert "The whole store was exported." in done.stdout
    with ms.open(sqlite_url) as store:
        store.users.create("lake.ann", comment="who is this")
    done = here(sqlite_url, "export", "gravitino", "--to", back)
    assert done.returncode == 1
    assert "An earlier export was replaced." in done.stdout
    assert "changed: user lake.ann: comment: it differs there" in done.stdout
    whole = json.loads(here(sqlite_url, "export", "gravitino", "--to", back, "--json").stdout)
    assert (whole["whole"], whole["counts"]) == (False, {"metalake": 1, "user": 1})
    for wrong in (["elsewhere"], [], ["gravitino", "--ids"]):
        assert here(sqlite_url, "export", *wrong, "--to", back).returncode == 1


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
def test_a_killed_export_leaves_the_database_as_it_was(url: str, source: str, tmp_path: Path) -> None:
    back, _ = moved(source, url, tmp_path)
    before = rows(back, "table_meta")
    with ms.open(url) as store:
        store.tables.create_many("lake.sales.us", [{"name": f"t{i:04}"} for i in range(1500)])
    code = "import sys; from metastore.exports.gravitino import export_gravitino as f; f(*sys.argv[1:])"
    killed = 0
    for after in (0.9, 1.5):
        process = subprocess.Popen([sys.executable, "-c", code, url, back])
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
            found = rows(back, "table_meta")
            assert found == before or len(found) == 1501
    assert killed, "no export was slow enough to be killed"
    assert export_gravitino(url, back).findings == []
    assert len(rows(back, "table_meta")) == 1501
