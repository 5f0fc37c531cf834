"""Spark reads the catalog itself, as a table, as of a position and as a stream; and writes to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

import metastore as ms
from metastore.errors import HistoryGone, InvalidArgument
from metastore.past.reads import PastReads
from metastore.port.commit import Unknown
from metastore.spark import history, register_source
from metastore.spark.source import write
from metastore.spark.source.source import _options, _Reader, _StreamReader
from tests.past.test_as_of import grown
from tests.past.trees import tree
from tests.spark import cluster_program

pytestmark = pytest.mark.one_in(3)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    """Give Spark with the source."""
    register_source(spark)
    return spark


def table(spark: SparkSession, url: str, name: str, **options: Any) -> DataFrame:
    return spark.read.format("metastore").options(url=url, table=name, **options).load()


def test_two_sessions(source: SparkSession, sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
    other = source.newSession()
    register_source(other)
    for session in (other, source):
        assert table(session, sqlite_url, "entities").count() == 1


@pytest.mark.each_run_on("postgres")
def test_entities_as_of_any_position(source: SparkSession, url: str) -> None:
    with ms.open(url, principal="tester") as store:
        trees = grown(store, 300, 40)
        for position in [*trees][len(trees) // 2 :: len(trees) // 2]:
            rows = table(source, url, "entities", at=position, partitions=3).collect()
            found = {(row.kind, row.path): (row.id, row.version, json.loads(row.document)) for row in rows}
            assert found == {key: row[:3] for key, row in trees[position].items()}
            owned = table(source, url, "owned", at=position).collect()
            expected = sorted(r[0] for row in trees[position].values() for r in row[5:])
            assert sorted(row.id for row in owned) == expected
        assert table(source, url, "entities", kinds="table").count() == sum(k == "table" for k, _ in tree(store))
        assert len(store.pins()) > 0


def test_changes_and_versions(source: SparkSession, sqlite_url: str) -> None:
    url = sqlite_url
    with ms.open(url, principal="tester") as store:
        grown(store, 301, 30)
        changes = list(store.changes())
    rows = table(source, url, "changes", partitions=3).orderBy("position").collect()
    assert [(r.position, r.operation_id, r.kind, r.entity_id, r.action, r.version) for r in rows] == [
        (c.position, str(c.operation_id), c.kind, c.entity_id, c.action, c.version) for c in changes
    ]
    assert [r.time.timestamp() for r in rows] == [c.time.timestamp() for c in changes]
    versions = table(source, url, "versions").orderBy("position").collect()
    assert [json.loads(v.document) for v in versions] == [c.to_dict()["document"] for c in changes]
    who = history(source, "who", url=url).collect()
    assert sum(row.changes for row in who) == len(changes)
    churn = history(source, "churn", url=url).collect()
    below = [c for c in changes if len((c.path_after or c.path_before or "").split(".")) > 3]
    assert sum(row.changes for row in churn) == len(below)


def test_histories_of_several_principals(source: SparkSession, sqlite_url: str) -> None:
    """A schema's name may have a dot; what one principal alone changes in an hour is not contended."""
    with ms.open(sqlite_url, principal="ann") as ann, ms.open(sqlite_url, principal="bob") as bob:
        ann.metalakes.create("m")
        ann.catalogs.create("m.c", type="relational")
        table = ann.tables.create("m.c.`a.b`.t", parents=True)
        bob.tables.alter(table, ms.SetComment("1"))
        ann.tables.create("m.c.`a.b`.u")
        changes = list(ann.changes())
    churn = history(source, "churn", url=sqlite_url).collect()
    assert {row.schema for row in churn} == {"m.c.`a.b`"}
    assert sum(row.changes for row in churn) == 3
    made, altered = [change.time.replace(minute=0, second=0, microsecond=0) for change in changes[-3:-1]]
    hours = history(source, "hours", url=sqlite_url).collect()
    assert sum(row.changes for row in hours) == len(changes)
    assert sum(row.contended for row in hours) == (2 if made == altered else 0)
    assert {row.kind for row in hours if row.contended} <= {"table"}


@pytest.mark.only_whole
@pytest.mark.timeout(900)
def test_a_stream_into_parquet_survives_restarts(source: SparkSession, sqlite_url: str, tmp_path: Path) -> None:
    """Each change is in the files once, although the query was stopped between, and batches are small."""

    def run() -> None:
        stream = source.readStream.format("metastore").options(url=sqlite_url, table="changes", maxChanges=20).load()
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(300), "it does not end"
        sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        assert max(sizes) <= 20
        assert all(size == 20 for size in sizes[:-1])

    with ms.open(sqlite_url, principal="tester") as store:
        for seed in range(2):
            if seed:
                store.tables.create("m.c.more.t", parents=True)
            else:
                grown(store, 302, 30)
            run()
        expected = [c.position for c in store.changes()]
    written = source.read.parquet(str(tmp_path / "out")).orderBy("position").collect()
    assert [row.position for row in written] == expected


def test_writing_entities_and_statistics(source: SparkSession, postgres_url: str) -> None:
    url = postgres_url
    with ms.open(url, principal="tester") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.old", parents=True, columns=[ms.Column("a", "int")], properties={"kept": "1"})
    rows = [("table", f"m.c.s.t{n}", "made", {"n": str(n)}) for n in range(20)]
    rows.append(("table", "m.c.s.old", "changed", {"n": "old"}))
    frame = source.createDataFrame(rows, "kind STRING, path STRING, comment STRING, properties MAP<STRING, STRING>")
    for _ in range(2):
        frame.write.format("metastore").options(url=url, table="entities").mode("append").save()
    figures = source.createDataFrame([("m.c.s.old", "rows", '{"n": 3}')], "path STRING, name STRING, values STRING")
    figures.write.format("metastore").options(url=url, table="statistics").mode("append").save()
    with ms.open(url) as store:
        found = {t.name: t for t in store.tables.list("m.c.s")}
        assert len(found) == 21
        assert {t.version for t in found.values()} == {1, 2}
        assert found["old"].properties == {"kept": "1", "n": "old"}
        assert [c.name for c in found["old"].columns] == ["a"]
        assert [dict(row.values) for row in store.statistics.list("m.c.s.old")] == [{"n": 3}]
    bad = source.createDataFrame([("table", "m.nothing.here", "x")], "kind STRING, path STRING, comment STRING")
    with pytest.raises(Exception, match=r"the row m\.nothing\.here"):
        bad.write.format("metastore").options(url=url, table="entities").mode("append").save()


def test_a_task_that_runs_again_leaves_what_people_did_meanwhile(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark repeats a task whose executor died: an edit stays, and what was dropped is not made again."""
    with ms.open(postgres_url, principal="people") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        rows = [Row(kind="table", path=f"m.c.s.t{n}", comment="made", properties={}) for n in range(7)]
        monkeypatch.setattr(write, "_CHUNK", 3)
        writer = write.Upsert("entities", lambda: ms.open(postgres_url), overwrite=False)
        assert writer.write(iter(rows[:3])).rows == 3  # it dies after its first chunk
        store.tables.alter("m.c.s.t1", ms.SetComment("edited"))
        assert store.tables.drop("m.c.s.t2")
        store.tables.rename("m.c.s.t0", "renamed")
        assert writer.write(iter(rows)).rows == 7
        assert {t.name: t.comment for t in store.tables.list("m.c.s")} == {
            "renamed": "made",
            "t1": "edited",
            **{f"t{n}": "made" for n in range(3, 7)},
        }
        again = write.Upsert("entities", lambda: ms.open(postgres_url), overwrite=False)  # another write means it
        again.write(iter(rows))
        assert store.tables.load("m.c.s.t1").comment == "made"
    with pytest.raises(InvalidArgument, match="append"):
        write.Upsert("entities", lambda: ms.open(postgres_url), overwrite=True)


def test_a_row_that_cannot_create_its_entity_says_so(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
    rows = [Row(kind="catalog", path="m.c", comment="x")]
    with pytest.raises(InvalidArgument, match=r"the row m\.c \(catalog\): it does not exist, and needs fields"):
        write.Upsert("entities", lambda: ms.open(sqlite_url), overwrite=False).write(iter(rows))


def test_under_compares_names_as_the_catalog_does(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.folds", type="relational", fold_case=True)
        store.catalogs.create("m.exact", type="relational")
        for path in ("m.folds.S.T", "m.folds.S.T2", "m.exact.S.T"):
            store.tables.create(path, parents=True)
    found = {u: [row["path"] for row in rows_read(sqlite_url, "entities", under=u)] for u in _UNDER}
    assert found == _UNDER


_UNDER = {
    "m.folds.s": ["m.folds.S", "m.folds.S.T", "m.folds.S.T2"],
    "m.folds.s.t": ["m.folds.S.T"],
    "m.exact.S": ["m.exact.S", "m.exact.S.T"],
    "m.exact.s": [],
    "m.FOLDS": [],
}
"""What is at or below a path; only the names below a catalog that folds may be written in another way."""


def test_what_the_store_hides_is_hidden(sqlite_url: str) -> None:
    """Statistics of a dropped partition, a partition that is being dropped, and a tag on a column that was dropped."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tags.create("m.pii")
        columns = [ms.Column("day", "date"), ms.Column("kept", "long"), ms.Column("gone", "long")]
        table = store.tables.create("m.c.s.t", parents=True, columns=columns, partitioning=["day"])
        for name in ("kept", "again", "gone", "going"):
            store.partitions.create(table, name, values={"day": name})
            store.statistics.set(table, {"custom-rows": 5}, partition=name)
        for column in ("kept", "gone"):
            store.tags.attach(table, "m.pii", column=column)
        for name in ("again", "gone"):
            store.partitions.drop(table, name)
        store.partitions.create(table, "again", values={"day": "again"})
        store.tables.alter("m.c.s.t", ms.DropColumn("gone"))
        store.partitions.begin_drop("m.c.s.t", "going", ttl=600)
    owned = {(row["kind"], row["name"]) for row in rows_read(sqlite_url, "owned")}
    assert owned == {("partition", "kept"), ("partition_statistic", "kept"), ("partition", "again")}
    assert [row["column_id"] for row in rows_read(sqlite_url, "relations")] == [2]


def test_tags_on_columns_are_read_in_few_statements(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tags.create("m.pii")
        for n in range(20):
            store.tables.create(f"m.c.s.t{n}", parents=True, columns=[ms.Column("a", "int"), ms.Column("b", "int")])
        for column in "ab":
            store.tags.attach_many("m.pii", [{"target": f"m.c.s.t{n}", "column": column} for n in range(20)])
    calls = list[int]()
    by_id = PastReads.by_id

    def counted(self: PastReads, ids: Any, **options: Any) -> Any:
        calls.append(len(ids))
        return by_id(self, ids, **options)

    monkeypatch.setattr(PastReads, "by_id", counted)
    assert len(rows_read(sqlite_url, "relations", partitions="1")) == 40
    assert len(calls) == 2


def test_a_task_whose_commits_got_no_answer_writes_when_it_runs_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run leaves the row of an operation that was not applied. The second must not take it for its own."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")

        @contextmanager
        def cut_off() -> Iterator[ms.Store]:
            with ms.open(sqlite_url, deadline=0.2) as other, monkeypatch.context() as patch:
                patch.setattr(other._session.backend, "commit", lambda commit: Unknown("cut"))
                yield other

        rows = [Row(kind="schema", path="m.c.s", comment="made", properties={})]
        opened: Iterator[Any] = iter([cut_off(), ms.open(sqlite_url)])
        writer = write.Upsert("entities", lambda: next(opened), overwrite=False)
        with pytest.raises((ms.OutcomeUnknown, ms.DeadlineExceeded)):
            writer.write(iter(rows))
        assert writer.write(iter(rows)).rows == 1
        assert store.schemas.load("m.c.s").comment == "made"


def rows_read(url: str, name: str, **options: str) -> list[dict[str, Any]]:
    """Return what the source itself reads."""
    reader = _Reader(_options({"url": url, "table": name, **options}))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_who_may_only_read_reads_the_entities(postgres_url: str) -> None:
    """A role that cannot write makes no pin, and gets the rows all the same."""
    with ms.open(postgres_url) as store:
        grown(store, 304, 10)
        everything = rows_read(postgres_url, "entities")
        pins = list(store.pins())
        assert (
            rows_read(f"{postgres_url}?options=-c%20default_transaction_read_only%3Don", "entities") == everything != []
        )
        assert list(store.pins()) == pins


def test_the_executors_run_the_python_of_the_program(
    source: SparkSession, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an activated environment, Spark would take the first python3 on the path, which has no metastore."""
    monkeypatch.setattr(source.sparkContext, "pythonExec", "python3-of-another-environment")
    register_source(source)
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
    assert [row.path for row in table(source, sqlite_url, "entities").collect()] == ["m"]


def test_options_say_what_is_read(sqlite_url: str) -> None:
    with ms.open(sqlite_url, principal="tester") as store:
        grown(store, 303, 40)
        changes = list(store.changes())
    everything = rows_read(sqlite_url, "entities")
    tables = [row for row in everything if row["kind"] == "table"]
    assert 0 < len(tables) < len(everything)
    assert rows_read(sqlite_url, "entities", kinds="table, tag") == [
        row for row in everything if row["kind"] in ("table", "tag")
    ]
    below = [row for row in everything if row["path"] == "m.c" or row["path"].startswith("m.c.")]
    assert rows_read(sqlite_url, "entities", under="m.c") == below != everything
    assert rows_read(sqlite_url, "entities", under="m.`c`", kinds="table") == [r for r in below if r["kind"] == "table"]
    events = rows_read(sqlite_url, "changes")
    after, until = changes[9].position, changes[19].position
    assert rows_read(sqlite_url, "changes", after=after, until=until) == events[10:20]
    assert rows_read(sqlite_url, "versions", after=changes[-1].position) == []
    only = rows_read(sqlite_url, "entities", columns="path, id")
    assert only == [{"path": row["path"], "id": row["id"]} for row in everything]
    with pytest.raises(InvalidArgument, match=r"no column .nothing."):
        rows_read(sqlite_url, "entities", columns="nothing")
    with pytest.raises(InvalidArgument, match=r"names one twice: path, path"):
        rows_read(sqlite_url, "entities", columns="path,path")
    with pytest.raises(InvalidArgument, match="another database"):
        rows_read(sqlite_url, "changes", after="0" * 8 + after[after.index("-") :])


def test_a_frame_and_a_view_keep_no_filter(source: SparkSession, sqlite_url: str) -> None:
    """Spark keeps one planned read for each frame: a filter that it kept too would hold for every later query."""
    with ms.open(sqlite_url, principal="tester") as store:
        grown(store, 305, 30)
        newest = len(list(store.changes()))
    frame = table(source, sqlite_url, "entities", columns="id,kind,path")
    first = frame.where("kind = 'table'").first()
    assert first is not None
    assert frame.where(f"id = {first.id}").count() == 1
    everything = frame.count()
    assert everything > frame.where("kind = 'table'").count() > 1
    assert frame.alias("a").join(frame.where("kind = 'table'").alias("b"), "id").count() < everything
    assert frame.join(frame.select("id"), "id").count() == everything
    source.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW told USING metastore OPTIONS (url '{sqlite_url}', table 'changes')"
    ).collect()
    assert source.sql("SELECT count(*) FROM told WHERE kind = 'table'").first() != (newest,)
    assert source.sql("SELECT count(*) FROM told").first() == (newest,)
    with ms.open(sqlite_url) as store:
        store.metalakes.create("later")
    assert frame.where("kind = 'metalake'").count() == 1, "a frame stays at its first instant, filtered or not"
    assert table(source, sqlite_url, "entities", kinds="metalake").count() == 2


def test_changes_that_gc_removes_meanwhile_are_not_left_out(url: str) -> None:
    """Spark plans, gc passes, an executor reads: the job fails and never has fewer rows."""
    with ms.open(url, principal="tester") as store:
        store.metalakes.create("m")
        for n in range(20):
            store.metalakes.alter("m", ms.SetComment(str(n)))
        middle = store.position()
        for n in range(20):
            store.metalakes.alter("m", ms.SetComment(f"later {n}"))
        reader = _Reader(_options({"url": url, "table": "changes", "partitions": "2"}))
        parts = reader.partitions()
        store.pin("middle", at=middle)
        store.pin("end")
        assert store.gc(retention=timedelta(0), keep_versions=1).versions > 0
        with pytest.raises(HistoryGone):
            [batch for part in parts for batch in reader.read(part)]
        with pytest.raises(HistoryGone):
            list(store.diff(middle))
        with pytest.raises(HistoryGone):
            _Reader(_options({"url": url, "table": "changes", "after": middle})).partitions()


def test_a_checkpoint_notices_a_backup_that_was_put_back(sqlite_url: str) -> None:
    """The stream has read changes that the backup does not have, and others have their numbers now."""
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    with ms.open(sqlite_url, principal="tester") as store:
        store.metalakes.create("m")
    backup = file.read_bytes()
    with ms.open(sqlite_url, principal="tester") as store:
        store.metalakes.alter("m", ms.SetComment("lost"))
    reader = _StreamReader(_options({"url": sqlite_url, "table": "changes"}))
    begin = reader.latestOffset(reader.initialOffset())
    assert begin["seq"] > 0
    for leftover in file.parent.glob(f"{file.name}-*"):
        leftover.unlink()
    file.write_bytes(backup)
    with ms.open(sqlite_url, principal="tester") as store:
        for n in range(5):
            store.metalakes.alter("m", ms.SetComment(f"new {n}"))
    with pytest.raises(InvalidArgument, match="restored from an older backup"):
        reader.partitions(begin, reader.latestOffset(begin))
    del begin["change"]  # as an earlier release wrote it: nothing tells
    assert reader.partitions(begin, reader.latestOffset(begin))


def test_relations_and_filters_in_queries(source: SparkSession, sqlite_url: str) -> None:
    with ms.open(sqlite_url, principal="tester") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        for name in "ab":
            store.tables.create(f"m.c.s.{name}", parents=True, columns=[ms.Column("id", "long")])
        store.tags.create("m.red")
        store.tags.create("m.gone")
        before = store.position()
        rows = [("m.c.s.a", "table", "m.red", "1", "id"), ("m.c.s.b", "table", "m.red", None, None)]
        rows.append(("m.c.s.b", "table", "m.gone", None, None))
        frame = source.createDataFrame(rows, "path STRING, kind STRING, tag STRING, value STRING, `column` STRING")
        for _ in range(2):
            frame.write.format("metastore").options(url=sqlite_url, table="tags").mode("append").save()
        store.tags.drop("m.gone")
        assert {t.target_path: (t.value, t.column) for t in store.tags.targets("m.red")} == {
            "m.c.s.a": ("1", "id"),
            "m.c.s.b": (None, None),
        }
    bad = source.createDataFrame([("m.c.s.x", "table", "m.red")], "path STRING, kind STRING, tag STRING")
    with pytest.raises(Exception, match=r"the row m\.c\.s\.x"):
        bad.write.format("metastore").options(url=sqlite_url, table="tags").mode("append").save()
    found = table(source, sqlite_url, "relations").where("kind = 'tag_on'").orderBy("from_path").collect()
    assert [(r.from_path, r.to_path, r.value, r.column_id) for r in found] == [
        ("m.c.s.a", "m.red", "1", 1),
        ("m.c.s.b", "m.red", None, None),
    ]
    assert table(source, sqlite_url, "relations", at=before).where("kind = 'tag_on'").count() == 0
    assert table(source, sqlite_url, "owned").count() == 0
    entities = table(source, sqlite_url, "entities", columns="path,kind")
    assert entities.columns == ["path", "kind"]
    chosen = entities.where("kind = 'table' AND path LIKE 'm.c.%' AND path <> 'm.c.s.a'")
    assert [r.path for r in chosen.collect()] == ["m.c.s.b"]


def test_the_url_may_name_a_variable(source: SparkSession, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ms.open(sqlite_url).close()
    with pytest.raises(Exception, match="no_such_variable is not set"):
        table(source, "env:no_such_variable", "entities").collect()


@pytest.mark.only_whole
@pytest.mark.timeout(400)
def test_the_examples_of_the_page(
    source: SparkSession, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cluster_program.run_page(sqlite_url, tmp_path) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("partitions", "0"), ("partitions", "many"), ("maxChanges", "0"), ("maxChanges", "-1"), ("kinds", "tables")],
)
def test_an_option_that_means_nothing_is_refused(option: str, value: str) -> None:
    """It is refused on the driver, with its name, before anything is read."""
    with pytest.raises(InvalidArgument, match=option.removesuffix("s")):
        _options({option: value})


def test_a_schema_that_is_renamed_between_planning_and_reading(sqlite_url: str) -> None:
    """The parts show the position at which they were planned, through a rename, a drop, new rows and gc."""
    with ms.open(sqlite_url, principal="tester") as store:
        grown(store, 304, 30)
        store.tables.create("m.c.late.t", parents=True)
        expected = rows_read(sqlite_url, "entities", columns="id,path,version,document")
        options = {"url": sqlite_url, "table": "entities", "partitions": "3", "columns": "id,path,version,document"}
        reader = _Reader(_options(options))
        parts = reader.partitions()
        store.schemas.rename("m.c.late", "renamed")
        store.tables.alter("m.c.renamed.t", ms.SetComment("later"))
        store.tables.create("m.c.renamed.new")
        store.catalogs.drop("m.f", cascade=True)
        store.gc(retention=timedelta(0), keep_versions=1)
        assert [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()] == expected
        assert rows_read(sqlite_url, "entities", columns="id,path,version,document") != expected
        for pin in store.pins():
            store.unpin(pin.name)
        store.gc(retention=timedelta(0), keep_versions=1)
        with pytest.raises(HistoryGone):
            [*reader.read(parts[0])]
