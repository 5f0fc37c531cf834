"""A part of a database, below another parent, beside what is there; and while others are at work."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

import metastore as ms
from metastore.store import Store
from metastore.transfer import chunks
from metastore.transfer.lines import Body, EntityLine, OwnedLine
from tests.cli.test_cli import here
from tests.concurrency.workers import Job, Team, Turn, outcome
from tests.contract.ground import dump
from tests.transfer.world import build, opened, port

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NewUrl = Callable[[str], str]


def exported(store: Store, target: ms.Entity | str) -> tuple[io.BytesIO, str]:
    stream = io.BytesIO()
    return stream, store.export_to(stream, target).hash


@pytest.fixture
def built(store: Store) -> Store:
    build(store)
    return store


def test_a_subtree_elsewhere(built: Store) -> None:
    """The same content under another parent has the same hash; what is around it is not touched."""
    stream, said = exported(built, "lake.c.s")
    built.catalogs.create("lake.d", type="relational")
    before = exported(built, "lake.c")[1]
    built.import_from(stream, into="lake.d")
    assert exported(built, "lake.d.s")[1] == said
    built.import_from(stream, into="lake.d.s")  # in a schema too, twice the same names on one path
    assert exported(built, "lake.d.s.s")[1] == said
    assert exported(built, "lake.c")[1] == before
    assert built.verify() == []


def test_ids_are_not_imported_where_something_is_or_was(store: Store) -> None:
    store.metalakes.create("lake")
    stream = io.BytesIO()
    store.export_to(stream, ids=True)
    for _ in range(2):
        stream.seek(0)
        with pytest.raises(ms.InvalidArgument, match="empty database"):
            store.import_from(stream)
        store.metalakes.purge("lake")
        store.gc(retention=timedelta(0), keep_versions=1)


def test_a_part_without_its_owners(store: Store) -> None:
    """Relations to what is outside of the part are not in the file, also where a name in it is the same."""
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    table = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "int")])
    store.tags.create("lake.c")
    store.tags.attach(table, "lake.c", column="a")
    store.owners.set(table, store.users.create("lake.bob"))
    stream, said = exported(store, store.catalogs.load("lake.c"))
    store.metalakes.create("other")
    store.import_from(stream, into="other")
    assert exported(store, "other.c")[1] == said
    assert store.owners.of("other.c.s.t") is None
    stream = exported(store, "lake")[0]
    store.metalakes.rename("lake", "before")
    store.import_from(stream)
    owner = store.owners.of("lake.c.s.t")
    assert owner is not None
    assert owner.name == "bob"


def test_one_table(built: Store) -> None:
    """Also what can have no children; where kinds share a name, by the entity."""
    with pytest.raises(ms.InvalidArgument, match="table and a fileset and a topic"):
        exported(built, "lake.c.s.t")
    table = built.tables.load("lake.c.s.t")
    stream, said = exported(built, table)
    built.schemas.create("lake.c.copy")
    assert built.import_from(stream, into="lake.c.copy").written == 6
    copy = built.tables.load("lake.c.copy.t")
    assert exported(built, copy)[1] == said
    assert (copy.version, copy.columns, copy.created_by) == (1, table.columns, "tester")
    assert list(built.partitions.names(copy)) == list(built.partitions.names(table))
    built.tables.drop(table)
    with pytest.raises(ms.EntityNotFound):
        exported(built, table)


def test_what_is_there(built: Store) -> None:
    """Equal is left alone; what differs is an error that names it, or left, or replaced, whole chunks at a time."""
    stream, said = exported(built, "lake.c")
    built.tables.alter("lake.c.s.100%_", ms.SetComment("mine"))
    built.partitions.drop("lake.c.s.t", "day=0")
    partitions = built.partitions
    partitions.put_many("lake.c.s.t", [partitions.row("day=1", {"day": "x"}, {})])
    built.tables.create("lake.c.s.extra")
    here, seen = exported(built, "lake.c")[1], len(list(built.changes()))
    with pytest.raises(ms.EntityAlreadyExists, match=r"line \d+: lake.c.s.(100%_|t.day=1) already exists, and differs"):
        built.import_from(stream)
    assert (exported(built, "lake.c")[1], len(list(built.changes()))) == (here, seen)
    assert built.import_from(stream, if_exists="return").written == 1  # the partition
    assert built.tables.load("lake.c.s.100%_").comment == "mine"
    assert built.import_from(stream, if_exists="replace").written == 2
    assert built.tables.load("lake.c.s.100%_").comment is None
    assert exported(built, "lake.c")[1] != said
    built.tables.purge("lake.c.s.extra")
    assert exported(built, "lake.c")[1] == said
    assert built.verify() == []


def test_a_replaced_table_keeps_its_own_column_ids(built: Store) -> None:
    """The ids in a file are those of another table: of one elsewhere, or of one that had the name before."""
    city, ssn = ms.Column("city", "string"), ms.Column("ssn", "string")
    built.tags.create("lake.mine")
    stream = io.BytesIO()
    old = built.tables.create("lake.c.people.t", columns=[city, ssn], parents=True)
    built.export_to(stream, "lake.c.people")
    built.tables.drop(old)
    built.schemas.create("lake.c.other")
    for into, path in ((None, "lake.c.people.t"), ("lake.c.other", "lake.c.other.people.t")):
        table = built.tables.create(path, columns=[ssn, city], parents=True)
        built.tags.attach(table, "lake.mine", column="ssn")
        built.import_from(stream, into=into, if_exists="replace")
        assert [(c.name, c.id) for c in built.tables.load(table).columns] == [("city", 2), ("ssn", 1)]
        assert [one.column for one in built.tags.targets("lake.mine") if one.target_path == path] == ["ssn"]
    assert built.verify() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "memory"])
def test_an_imported_id_takes_no_row_over(new_url: NewUrl, kind: str) -> None:
    """Field case 6: the file has ids that other entities have here. It is refused, and nothing is changed."""
    stream = io.BytesIO()
    with opened("memory://") as store:
        build(store)
        store.export_to(stream, ids=True)
        theirs = store.tables.load("lake.c.s.t").id
    with opened(new_url(kind)) as store:
        for n in range(theirs):
            store.metalakes.create(f"ours{n}")
        assert theirs in [one.id for one in store.metalakes.list()]
        before = dump(port(store))
        with pytest.raises(ms.InvalidArgument, match="empty database"):
            store.import_from(stream)
        assert dump(port(store)) == before
        assert store.verify() == []


def test_another_kind_and_case(built: Store) -> None:
    """A view where a table is; names that only differ in case, below what folds it; what is disabled."""
    stream, _ = exported(built, built.tables.load("lake.c.s.t"))
    built.schemas.create("lake.c.other")
    built.views.create("lake.c.other.t")
    for rule in ("error", "return", "replace"):
        with pytest.raises(ms.EntityAlreadyExists, match="is a view"):
            built.import_from(stream, into="lake.c.other", if_exists=rule)
    built.schemas.create("lake.c.cases")
    for name in ("a", "A"):
        built.tables.create(f"lake.c.cases.{name}")
    stream, _ = exported(built, "lake.c.cases")
    built.catalogs.create("lake.folding", type="relational", fold_case=True)
    with pytest.raises(ms.InvalidArgument, match="twice: the catalog treats the two names as equal"):
        built.import_from(stream, into="lake.folding")
    built.catalogs.disable("lake.newer")
    with pytest.raises(ms.NotInUse):
        built.import_from(stream, into="lake.newer")
    stream, _ = exported(built, "closed")
    built.metalakes.enable("closed")
    built.catalogs.enable("closed.folds")
    built.import_from(stream, if_exists="return")
    assert built.metalakes.load("closed").in_use
    assert built.catalogs.load("closed.folds").in_use
    built.import_from(stream)
    assert not built.metalakes.load("closed").in_use
    assert not built.catalogs.load("closed.folds").in_use
    built.metalakes.enable("closed")
    stream, _ = exported(built, "closed")
    built.metalakes.disable("closed")
    with pytest.raises(ms.EntityAlreadyExists):
        built.import_from(stream)
    built.import_from(stream, if_exists="replace")
    assert built.metalakes.load("closed").in_use


@pytest.mark.parametrize("chunk", [1, 1000])
@pytest.mark.parametrize("rule", ["error", "return", "replace"])
def test_names_that_are_one_below_a_catalog_that_folds(
    store: Store, rule: Literal["error", "return", "replace"], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, although the two names lie in different chunks, and although one of them is there already."""
    monkeypatch.setattr(chunks, "_CHUNK", chunk)
    store.metalakes.create("m")
    store.catalogs.create("m.plain", type="relational")
    for name in ("a", "b", "A"):
        store.tables.create(f"m.plain.s.{name}", parents=True, comment=name)
    store.catalogs.create("m.folds", type="relational", fold_case=True)
    stream, _ = exported(store, "m.plain.s")
    for there in ([], ["A"]):
        for name in there:
            store.tables.create(f"m.folds.s.{name}", parents=True, comment="there")
        before = dump(port(store))
        with pytest.raises(ms.InvalidArgument, match=r"line \d+: the file has s\.[aA] twice: the catalog treats"):
            store.import_from(stream, into="m.folds", if_exists=rule)
        assert dump(port(store)) == before


def rename_it(turn: Turn) -> int:
    """Rename the schema to and fro, drop and create tables in it, while others import into it."""
    turn.meet()
    for n in range(200):
        if not turn.go_on():
            break
        here, there = ("lake.c.a", "b") if n % 2 == 0 else ("lake.c.b", "a")
        outcome(turn.store.schemas.rename, here, there)
        outcome(turn.store.tables.create, f"lake.c.{there}.t{n}", if_exists="return")
    return turn.store.counters["commits"]


def import_it(turn: Turn, file: Path) -> int:
    turn.meet()
    while True:
        for name in ("a", "b"):
            with suppress(ms.EntityNotFound):  # it has just got the other name
                return turn.store.import_from(file, into=f"lake.c.{name}", if_exists="return").written


@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_beside_others(new_url: NewUrl, team: Team, tmp_path: Path, kind: str) -> None:
    """Three imports of one file at once, into a schema that is renamed all the time: each line is written once."""
    url, file = new_url(kind), tmp_path / "e.jsonl"
    with opened("memory://") as store:
        build(store)
        store.tables.create_many("lake.c.s", [{"name": f"more{n}"} for n in range(2500)])
        said = store.export_to(file, "lake.c.s")
    with opened(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.a")
        jobs = [Job(import_it, file) for _ in range(3)]
        written = team.run(url, [*jobs, Job(rename_it, background=True)])
        assert sum(written[:3]) == said.entities + said.owned
        assert store.verify() == []
        schema = next(iter(store.schemas.list("lake.c")))
        (inner,) = store.schemas.list(schema)
        assert exported(store, inner)[1] == said.hash


def test_command_line(tmp_path: Path) -> None:
    """What docs/cli.md says: files, standard output, hashes, JSON, exit codes."""
    url, other, file = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db", str(tmp_path / "e.jsonl")
    with opened(url) as store:
        build(store)
    done = here(url, "export", "-o", file, "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    done = here(url, "export", "-o", "/dev/null")
    assert f"content hash  {said['hash']}" in done.stdout
    done = here(url, "export", "lake.c.s.t", "--kind", "fileset")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("kind") for line in lines] == [None, "fileset", None]
    assert "3 lines: 1 entities" in done.stderr
    done = here(other, "import", file, "--json")
    assert json.loads(done.stdout)["hash"] == said["hash"]
    done = here(other, "import", file)
    assert "0 entities and owned rows written" in done.stdout
    (tmp_path / "e.jsonl").write_bytes((tmp_path / "e.jsonl").read_bytes()[:-9])
    done = here(other, "import", file)
    assert done.returncode == 1
    assert "is not whole" in done.stderr
    (tmp_path / "e.jsonl").rename(tmp_path / "e.jsonl.partial")
    done = here(url, "export", "--history", "-o", file)
    assert "Started again from the first line: it was begun with other options" in done.stdout
    third = f"sqlite:///{tmp_path}/c.db"
    assert "Restored" in here(third, "import", file).stdout
    assert "No violations" in here(third, "verify").stdout


@pytest.fixture
def copies(new_url: NewUrl) -> Iterator[tuple[Store, Store, io.BytesIO]]:
    """Give two databases with a table and a model of one name, and an export of the first."""
    with opened(new_url("memory")) as one, opened(new_url("memory")) as other:
        for store in (one, other):
            store.metalakes.create("m")
            store.catalogs.create("m.c", type="relational")
            store.schemas.create("m.c.s")
            store.tags.create("m.pii")
        one.tables.create("m.c.s.t", columns=[ms.Column("city", "string"), ms.Column("id", "long")], comment="one")
        one.models.create("m.c.s.model", comment="one")
        one.models.add_version("m.c.s.model", uris={"a": "s3://one"}, aliases=("prod", "old"))
        file = io.BytesIO()
        one.export_to(file, "m.c.s")
        yield one, other, file


def test_a_replaced_table_keeps_the_ids_of_its_columns(copies: tuple[Store, Store, io.BytesIO]) -> None:
    """Tags of a column hang on its id: those of one name stay, and a new column gets no id that was given before."""
    _, other, file = copies
    table = other.tables.create("m.c.s.t", columns=[ms.Column(name, "long") for name in ("id", "ssn", "gone")])
    for column in ("ssn", "id", "gone"):
        other.tags.attach(table, "m.pii", column=column)
    other.tables.alter(table, ms.DropColumn("gone"))
    other.import_from(file, if_exists="replace")
    table = other.tables.load("m.c.s.t")
    assert [column.name for column in table.columns] == ["city", "id"]
    assert {tag.column for tag in other.tags.targets("m.pii")} == {"id"}
    table = other.tables.alter(table, ms.AddColumn("new", "long"))
    assert {tag.column for tag in other.tags.targets("m.pii")} == {"id"}
    assert len({column.id for column in table.columns} | {1, 2, 3}) == 5, "city and new have ids of their own"
    assert other.import_from(file, if_exists="return").written == 0
    assert other.verify() == []


@pytest.mark.parametrize("if_exists", ["replace", "return"])
def test_a_replaced_model_loses_no_alias_and_its_counter_never_goes_down(
    copies: tuple[Store, Store, io.BytesIO], if_exists: Literal["replace", "return"]
) -> None:
    _, other, file = copies
    model = other.models.create("m.c.s.model")
    for n in range(3):
        other.models.add_version(model, uris={"a": f"s3://other/{n}"}, aliases=("prod",) if n == 2 else (f"a{n}",))
    other.import_from(file, if_exists=if_exists)
    assert other.models.load(model).latest_version == 3
    assert other.models.load_version(model, "prod").number == 3, "it stays where people let it point"
    assert other.models.load_version(model, "a1").number == 2
    replaced = if_exists == "replace"
    kept = {"a0": 1, "a1": 2, "prod": 3} | ({"old": 1} if replaced else {})
    assert dict(other.models.load(model).aliases) == kept
    assert other.models.load_version(model, 1).aliases == (("a0", "old") if replaced else ("a0",))
    assert other.models.add_version(model, uris={"a": "s3://new"}).number == 4
    again = other.import_from(file, if_exists=if_exists)
    assert again.written == 0
    assert other.verify() == []


def test_versions_that_come_into_a_model_raise_its_counter(copies: tuple[Store, Store, io.BytesIO]) -> None:
    _, other, file = copies
    model = other.models.create("m.c.s.model")
    other.import_from(file, if_exists="return")
    assert [version.number for version in other.models.versions(model)] == [1]
    assert other.models.add_version(model, uris={"a": "s3://new"}).number == 2
    assert other.verify() == []


def test_a_part_that_goes_back_where_it_came_from_finds_columns_by_their_names(
    copies: tuple[Store, Store, io.BytesIO],
) -> None:
    """A file does not say which table it is of: one that was made again has other columns under the same ids."""
    one, _, file = copies
    one.tags.attach("m.c.s.t", "m.pii", column="city")
    one.tables.alter("m.c.s.t", ms.RenameColumn("city", "town"), ms.AddColumn("later", "long"))
    one.import_from(file, if_exists="replace")
    assert list(one.tags.targets("m.pii")) == []
    table = one.tables.alter("m.c.s.t", ms.AddColumn("new", "long"))
    assert [column.id for column in table.columns] == [4, 2, 5]


def test_a_table_that_is_left_as_it_is_gets_no_tag_on_a_column_that_it_lacks(
    copies: tuple[Store, Store, io.BytesIO],
) -> None:
    """The import ended there, and all relations after it stayed away, however often it was repeated."""
    one, other, _ = copies
    one.tags.attach("m.c.s.t", "m.pii", column="city")
    one.tags.attach("m.c.s.t", "m.pii", column="id")
    file = io.BytesIO()
    one.export_to(file, "m")
    other.tables.create("m.c.s.t", columns=[ms.Column("id", "long")])
    other.import_from(file, if_exists="return")
    assert {tag.column for tag in other.tags.targets("m.pii")} == {"id"}
    assert other.import_from(file, if_exists="return").written == 0


def test_an_entity_is_written_together_with_its_first_row() -> None:
    """A killed import leaves no entity that does not say where it came from."""

    def lines() -> Iterator[tuple[int, Body]]:
        for n in range(700):
            yield 3 * n, EntityLine((f"t{n}",), (), "table", "table", True, {}, {}, {})
            for kind in ("origin", "statistic"):
                yield 3 * n, OwnedLine(kind, "a", {}, {}, None, None)

    made = list(chunks.chunks(lines()))
    assert len(made) > 1
    assert all(group.owned[0][1].kind == "origin" for chunk in made for group in chunk if group.fresh)


def test_statistics_of_a_dropped_partition_do_not_come_back(copies: tuple[Store, Store, io.BytesIO]) -> None:
    """Their row stays in the table: a new partition of that name must not get them, neither there nor here."""
    one, other, _ = copies
    table = one.tables.create("m.c.s.days", columns=[ms.Column("day", "date")], partitioning=["day"])
    for name in ("kept", "dropped"):
        one.partitions.create(table, name, values={"day": name})
        one.statistics.set(table, {"custom-rows": 5}, partition=name)
    before = io.BytesIO()
    one.export_to(before, table)
    one.partitions.drop(table, "dropped")
    one.partitions.create(table, "dropped", values={"day": "dropped"})
    after = io.BytesIO()
    one.export_to(after, table)
    other.import_from(after, into="m.c.s")
    assert other.statistics.of("m.c.s.days", partition="kept") == {"custom-rows": 5}
    assert other.statistics.of("m.c.s.days", partition="dropped") == {}
    one.import_from(before)  # the file has the statistics, which are equal to the row that nobody sees
    assert one.statistics.of(table, partition="dropped") == {"custom-rows": 5}
    assert one.verify() == other.verify() == []
