"""Import from Gravitino's own database: everything, of several versions, again and again, sound or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import sqlalchemy as sa

import metastore as ms
from metastore.imports.gravitino import Report, import_gravitino
from tests.cli.test_cli import here
from tests.imports.gravitino_tables import VERSIONS, create_tables
from tests.imports.gravitino_world import World

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

T = "lake.sales.eu.orders"


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The address of a database of Gravitino; most tests read it from SQLite, which has the same tables."""
    return f"sqlite:///{tmp_path}/gravitino.db"


@contextmanager
def world(source: str, version: int | None = None, metadata: sa.MetaData | None = None) -> Iterator[World]:
    """Give the tables to write to; with ``version`` they are made. ``metadata``: as for a World."""
    engine = sa.create_engine(source)
    with engine.begin() as connection:
        if version is not None:
            create_tables(connection, version)
        yield World(connection, metadata)
    engine.dispose()


def run(url: str, source: str, tmp_path: Path) -> Report:
    report = import_gravitino(url, source, file=tmp_path / "import.jsonl")
    assert report.same
    assert not (tmp_path / "import.jsonl").exists()
    with ms.open(url) as store:
        assert list(store.verify()) == []
    return report


def test_orphans_of_one_parent_are_one_line(sqlite_url: str, source: str, tmp_path: Path) -> None:
    """A schema that was dropped beside a thousand creates leaves a line, and not a thousand."""
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        for n in range(7):
            there.table(3000 + n, f"lost{n}", schema_id=999)
        there.table(3100, "alone", schema_id=998)
    report = run(sqlite_url, source, tmp_path)
    named = ", ".join(f"'lost{n}' ({3000 + n})" for n in range(5))
    assert sorted(one.what for one in report.findings if one.problem == "orphan") == [
        f"7 of kind table: their schema 999 is gone: {named} and 2 more",
        "table 'alone' (3100): its schema 998 is gone",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_comes_over(url: str, source: str, tmp_path: Path, version: int) -> None:
    with world(source, version) as there:
        there.fill()
    report = run(url, source, tmp_path)
    assert report.findings == []
    assert (report.counts["table"], report.counts["catalog"], report.counts.get("view", 0)) == (1, 2, version >= 130)
    with ms.open(url) as store:
        table = store.tables.load(T)
        assert [(c.name, c.type, c.nullable) for c in table.columns] == [
            ("id", "int", False),
            ("address", "struct<x: string>", True),
        ]
        assert (table.created_by, table.modified_by, table.version) == ("ann", "bob", 2)
        assert table.created_at == datetime(2025, 3, 4, 5, 6, 7, 123456, UTC)
        if version >= 110:
            assert (table.comment, dict(table.properties), table.format) == ("all orders", {"p": "q"}, "lance")
            assert (table.partitioning, table.indexes[0].name) == (("id",), "pk")
        assert not store.catalogs.load("lake.off").in_use
        assert dict(store.catalogs.load("lake.sales").properties) == {"k": "v"}
        assert dict(store.filesets.load("lake.sales.eu.files").locations) == {"default": "s3://b/1", "cold": "s3://c/1"}
        assert store.models.load_version("lake.sales.eu.churn", "prod").number == 2
        assert store.statistics.of(T) == {"custom-rows": 5}
        on = {(one.name, one.column) for one in store.tags.on(table, inherited=False)}
        assert on == {("pii", None)}
        assert [one.name for one in store.tags.on(table, column="address", inherited=False)] == ["pii"]
        assert [one.name for one in store.policies.on(table)] == ["keep"]
        owner = store.owners.of(table)
        assert owner is not None
        assert owner.name == "ann@corp.com"
        ann = store.users.load(("lake", "ann@corp.com"))
        assert [role.name for role in store.roles.of(ann)] == ["reader"]
        assert [(g.privilege, g.path) for g in store.roles.grants("lake.reader")] == [("select_table", T)]
        assert store.job_templates.load("lake.say").arguments == ("{{word}}",)
        assert (store.jobs.load("lake.job-80").status, store.jobs.load("lake.job-80").execution_id) == (
            "succeeded",
            "x-80",
        )
        if version >= 120:
            assert store.functions.load("lake.sales.eu.plus").definitions[0].implementations[0].body == "x + 1"
            assert store.statistics.of(T, partition="id=1") == {"custom-n": 7}
        if version >= 130:
            assert store.views.load("lake.sales.eu.big").representations[0].text == "SELECT 1"


def test_what_is_inconsistent_is_named_and_the_rest_comes_over(url: str, source: str, tmp_path: Path) -> None:
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        planted = there.spoil()
    report = run(url, source, tmp_path)
    assert report.problems() == planted
    assert any("lost" in one.what for one in report.findings)
    with ms.open(url) as store:
        assert list(store.tables.names("lake.sales.eu")) == ["orders"]
        owner = store.owners.of(T)
        assert owner is not None
        assert owner.name == "bob", "the newer of two owners"


def test_it_follows_what_changes_there(url: str, source: str, tmp_path: Path) -> None:
    """Field case 6: an entity is the one that has its id there, whatever the names; what was made here stays."""
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        there.table(1001, "old")
        there.table(1002, "dropped later")
    run(url, source, tmp_path)
    with ms.open(url) as store:
        before, other = store.tables.load(T), store.tables.load("lake.sales.eu.old")
        own = store.schemas.create("lake.sales.own")
    again = run(url, source, tmp_path)
    assert (again.written, again.renamed, again.removed) == (0, 0, 0)
    with world(source) as there:
        there.set("table_meta", {"table_id": 1000}, table_name="old", current_version=3, schema_id=101)
        there.set("table_column_version_info", {"column_id": 5003}, column_name="place")
        there.column(1000, 5004, "new", 0, version=3)
        there.set("table_meta", {"table_id": 1001}, table_name="orders")
        there.set("table_meta", {"table_id": 1002}, deleted_at=7)
        there.set("tag_relation_meta", {"metadata_object_id": 10}, deleted_at=7)
        there.set("owner_meta", {"metadata_object_id": 1000}, owner_id=21)
        there.set("model_version_info", {"version": 0}, deleted_at=7)
    report = run(url, source, tmp_path)
    assert (report.renamed, report.removed) == (2, 3)
    with ms.open(url) as store:
        moved = store.tables.load("lake.sales.us.old")
        assert moved.id == before.id
        assert {c.name: c.id for c in moved.columns} == {"id": 1, "place": 2, "new": 4}
        assert [one.name for one in store.tags.on(moved, column="place", inherited=False)] == ["pii"]
        assert list(store.tables.names("lake.sales.eu")) == ["orders"]
        assert store.tables.load(T).id == other.id, "it has the name of the other one, and not its row"
        assert [one.name for one in store.tables.dropped("lake.sales.eu")] == ["dropped later"]
        assert store.tags.on("lake.sales") == []
        owner = store.owners.of(moved)
        assert owner is not None
        assert owner.name == "bob"
        assert [v.number for v in store.models.versions("lake.sales.eu.churn")] == [2]
        assert store.schemas.load("lake.sales.own") == own


def test_it_follows_below_what_is_disabled_and_keeps_what_was_made_here(url: str, source: str, tmp_path: Path) -> None:
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        off = {"metalake_id": 1, "catalog_id": 11, "schema_id": 110}
        there.add("schema_meta", **off, schema_name="below", properties={})
        there.add("topic_meta", topic_id=1301, topic_name="first", comment="", properties={}, **off)
        there.set("user_meta", {"user_id": 21}, enabled=False)
    run(url, source, tmp_path)
    with ms.open(url) as store:
        assert not store.users.load("lake.bob").enabled
        store.tables.create("lake.sales.us.mine")
    with world(source) as there:
        there.set("topic_meta", {"topic_id": 1301}, topic_name="second")
        there.set("schema_meta", {"schema_id": 101}, deleted_at=9)
        there.add("topic_meta", topic_id=1302, topic_name="third", comment="", properties={}, **off)
    report = import_gravitino(url, source, file=tmp_path / "import.jsonl")
    assert report.same  # what is kept for the sake of people is not a difference
    assert report.problems() == {"kept": 1}
    with ms.open(url) as store:
        assert list(store.topics.names("lake.off.below")) == ["second", "third"]
        assert not store.catalogs.load("lake.off").in_use
        assert store.tables.exists("lake.sales.us.mine")


def test_dropped_entities_can_be_restored(url: str, source: str, tmp_path: Path) -> None:
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        for key, at in ((1001, 5), (1002, 6)):
            there.table(key, "gone", deleted_at=at)
            there.column(key, key * 10, f"c{at}", 0, deleted_at=at)
        there.table(1003, "orders", deleted_at=7)
    assert run(url, source, tmp_path).dropped == 3
    assert run(url, source, tmp_path).dropped == 0
    with ms.open(url) as store:
        assert [c.name for c in store.tables.restore("lake.sales.eu.gone").columns] == ["c6"]
        assert sorted(t.name for t in store.tables.dropped("lake.sales.eu")) == ["gone", "orders~dropped"]


@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("after", [0.3, 0.8, 1.5])
def test_a_killed_import_is_repeated(url: str, source: str, tmp_path: Path, after: float) -> None:
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        for i in range(400):
            there.table(2000 + i, f"t{i:03}")
    file = tmp_path / "import.jsonl"
    code = (
        "import sys; from metastore.imports.gravitino import import_gravitino as f; f(*sys.argv[1:3], file=sys.argv[3])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, url, source, str(file)])
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with world(source) as there:
        there.table(3000, "made meanwhile")
    report = run(url, source, tmp_path)
    assert report.counts["table"] == 402
    with ms.open(url) as store:
        assert sum(1 for _ in store.tables.names("lake.sales.eu")) == 402


def test_a_database_moves_over_and_back(url: str, source: str, tmp_path: Path) -> None:
    """What was imported leaves as an export with ids, and a new store made of that shows the same."""
    with world(source, VERSIONS[-1]) as there:
        there.fill()
    run(url, source, tmp_path)
    with ms.open(url) as store:
        exported = store.export_to(tmp_path / "whole.jsonl", ids=True)
    back = f"sqlite:///{tmp_path}/back.db"
    assert ms.restore(back, tmp_path / "whole.jsonl").hash == exported.hash
    assert run(back, source, tmp_path).written == 0  # and it is still known which entity is which there


UNUSABLE = (
    "postgresql://u:hunter2@127.0.0.1:1/db",
    "postgresql://u:hunter2@127.0.0.1:port/db",
    "hunter2 is not a URL",
)


@pytest.mark.parametrize(
    "bad", ["nothing://x", "sqlite:////none/such.db", "h2:/none.sql", "/no/such/script.sql", *UNUSABLE]
)
def test_a_wrong_address_is_refused_without_its_password(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ms.InvalidArgument) as refused:
        import_gravitino(f"sqlite:///{tmp_path}/store.db", bad, file=tmp_path / "import.jsonl")
    assert "hunter2" not in str(refused.value)


def test_mysql_without_its_driver_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(ms.InvalidArgument, match=r"needs pymysql: pip install 'versioned-metastore\[serve,mysql\]'"):
        import_gravitino(f"sqlite:///{tmp_path}/store.db", "mysql://u:hunter2@h/db", file=tmp_path / "import.jsonl")


def test_the_command_shows_the_report_and_both_hashes(
    sqlite_url: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        there.spoil()
    done = here(sqlite_url, "import", "gravitino", "--from", source)
    assert done.returncode == 0, done.stderr
    assert "orphan: table 'lost' (1901): its schema 999 is gone: left out" in done.stdout
    assert "The contents are the same." in done.stdout
    refused = here(sqlite_url, "import", "elsewhere", "--from", source)
    assert refused.returncode == 1


def test_earlier_versions_are_history(url: str, source: str, tmp_path: Path) -> None:
    with world(source, VERSIONS[-1]) as there:
        there.fill()
        there.set("fileset_meta", {"fileset_id": 1200}, current_version=3, last_version=3)
        for version, gone in ((2, 9), (3, 0)):  # what retention marked is still told
            said = {"fileset_comment": f"v{version}", "properties": {}, "storage_location_name": "default"}
            kept = {"storage_location": f"s3://b/{version}", "deleted_at": gone, **there.place()}
            there.add("fileset_version_info", fileset_id=1200, version=version, **said, **kept)
        first = {"table_id": 1000, "version": 1, "comment": "the first", "properties": {}, "deleted_at": 5}
        there.add("table_version_info", **first)
        there.set("policy_meta", {"policy_id": 60}, current_version=2, last_version=2)
        content = {"customRules": {"days": 4}, "properties": {}, "supportedObjectTypes": ["TABLE"]}
        lake = {"metalake_id": 1}
        there.add("policy_version_info", policy_id=60, version=2, policy_comment="", content=content, **lake)
    run(url, source, tmp_path)
    with ms.open(url) as store:
        past = list(store.filesets.history("lake.sales.eu.files"))
        files = [store.filesets.load("lake.sales.eu.files", version=one.version) for one in past]
        assert [(one.version, one.comment) for one in files] == [(1, "some"), (2, "v2"), (3, "v3")]
        assert dict(files[0].locations) == {"default": "s3://b/1", "cold": "s3://c/1"}
        assert (past[0].principal, past[1].principal, past[2].principal) == ("ann", None, "bob")
        first_table = store.tables.load(T, version=1)
        assert first_table.comment == "the first"
        assert [(c.name, c.id) for c in first_table.columns] == [("id", 1), ("gone", 4), ("old name", 2)]
        store.tables.alter(T, ms.AddColumn("fresh", "int"))
        assert {c.name: c.id for c in store.tables.load(T).columns} == {"id": 1, "address": 2, "fresh": 5}
        keep = [store.policies.load("lake.keep", version=version).content for version in (1, 2)]
        assert [one["customRules"]["days"] for one in keep] == [3, 4]
        assert list(store.verify()) == []
        with pytest.raises(ms.HistoryGone):  # of the whole, nothing before the import is known
            store.at(past[0].time).filesets.load("lake.sales.eu.files")
