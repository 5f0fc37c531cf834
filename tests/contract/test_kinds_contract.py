"""Every kind below a schema does everything: the built-in ones, and those that others declare."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.change import decode, encode
from tests.contract import boards
from tests.contract.ground import Ground
from tests.contract.intents import announce

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

SQL = ms.SQL("spark", "SELECT 1")
ADD = ms.Implementation("sql", "a + b", runtime="spark")
INTS = (ms.Column("a", "int"), ms.Column("b", "int"))


@dataclass(frozen=True)
class Sample:
    """A kind: fields for ``create``, and two changes that two people may make at once."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    one: ms.EntityChange = field(default_factory=lambda: ms.SetComment("one"))
    other: ms.EntityChange = field(default_factory=lambda: ms.SetProperty("k", "other"))
    shows: Callable[[Any], object] = lambda e: (e.comment, e.properties.get("k"))
    both: object = ("one", "other")


SAMPLES = [
    Sample(
        "table",
        {"columns": INTS, "location": "s3://b/t", "format": "parquet"},
        ms.AddColumn("c", "int"),
        ms.SetColumnComment("a", "first"),
        lambda e: (len(e.columns), e.columns[0].comment),
        (3, "first"),
    ),
    Sample(
        "view",
        {"columns": INTS, "representations": (SQL,), "default_catalog": "c", "default_schema": "s"},
        ms.SetRepresentation("trino", "SELECT 2"),
        ms.RenameColumn("b", "z"),
        lambda e: ({r.dialect for r in e.representations}, e.columns[1].name),
        ({"spark", "trino"}, "z"),
    ),
    Sample("fileset", {"type": "external", "locations": {"a": "s3://b/f"}}),
    Sample("topic"),
    Sample("model"),
    Sample(
        "function",
        {"definitions": (ms.Definition(INTS, "int", (ADD,)),), "deterministic": True},
        ms.AddDefinition(ms.Definition((ms.Column("s", "string"),), "string")),
        ms.AddImplementation(("int", "int"), ms.Implementation("python", "lambda a, b: a + b", handler="add")),
        lambda e: [len(d.implementations) for d in e.definitions],
        [2, 0],
    ),
    Sample(
        "board",
        {"owner": "ann", "panels": [{"name": "p", "query": "q"}]},
        boards.AddPanel("p2", "q2"),
        boards.SetOwner("bob"),
        lambda e: ([p["name"] for p in e.panels], e.owner),
        (["p", "p2"], "bob"),
    ),
]
PATH, ELSEWHERE = "m.c.one.x", "m.c.two.x"


@pytest.fixture(params=SAMPLES, ids=lambda sample: sample.kind)
def sample(request: pytest.FixtureRequest) -> Sample:
    """Give each kind in turn."""
    found: Sample = request.param
    return found


def make(ground: Ground, sample: Sample, path: str = PATH, **options: Any) -> Any:
    """Create one."""
    return ground.store.manager(sample.kind).create(path, **sample.fields, **options)


def shown(entity: Any) -> dict[str, object]:
    """Return the fields of its kind."""
    return {name: getattr(entity, name) for name in type(entity).doc_fields}


@pytest.mark.each_run_on("sqlite")
class TestEveryKind:
    def test_what_was_given_comes_back(self, ground: Ground, sample: Sample) -> None:
        made = make(ground, sample, comment="c", properties={"p": "1"})
        manager = ground.store.manager(sample.kind)
        (version,) = manager.history(made)
        (change,) = [c for c in ground.store.changes() if c.entity_id == made.id]
        copy = pickle.loads(pickle.dumps(made))
        for found in (made, manager.load(PATH), manager.load_many([PATH])[0], version.entity, change.entity, copy):
            assert isinstance(found, ms.Entity)
            assert shown(found) == shown(made)
            assert (found.kind, found.path, found.comment, dict(found.properties)) == (
                sample.kind,
                PATH,
                "c",
                {"p": "1"},
            )
        for name, given in sample.fields.items():
            if name not in ("columns", "panels"):
                assert getattr(made, name) == given
        assert [e.id for e in manager.list("m.c.one")][-1:] == [made.id]
        assert list(manager.names("m.c.one"))[-1:] == ["x"]

    def test_two_people_at_once_both_land(self, ground: Ground, sample: Sample) -> None:
        stale, manager = make(ground, sample), ground.store.manager(sample.kind)
        manager.alter(stale, sample.one)
        assert sample.shows(manager.alter(stale, sample.other)) == sample.both
        assert sample.shows(manager.load(PATH)) == sample.both
        assert [v.action for v in manager.history(stale)] == ["create", "alter", "alter"]

    def test_a_change_is_written_down_and_read_back(self, sample: Sample) -> None:
        changes = (sample.one, sample.other)
        assert decode(encode(changes)) == changes

    def test_an_intent_is_helped_by_whoever_writes_next(self, ground: Ground, sample: Sample) -> None:
        made, manager = make(ground, sample), ground.store.manager(sample.kind)
        operation_id = announce(ground, made, changes=ms_json(sample.one))
        assert sample.shows(manager.alter(PATH, sample.other)) == sample.both
        assert ground.store.outcome(operation_id).state == "committed"

    def test_an_equal_change_writes_nothing(self, ground: Ground, sample: Sample) -> None:
        make(ground, sample, comment="c")
        assert ground.store.manager(sample.kind).alter(PATH, ms.SetComment("c")).version == 1

    def test_rename_move_drop_restore_purge(self, ground: Ground, sample: Sample) -> None:
        made, manager = make(ground, sample), ground.store.manager(sample.kind)
        assert manager.rename(PATH, "y").path == "m.c.one.y"
        moved = manager.rename("m.c.one.y", ELSEWHERE)
        assert (moved.id, moved.path, shown(moved)) == (made.id, ELSEWHERE, shown(made))
        assert manager.drop(ELSEWHERE)
        assert not manager.exists(ELSEWHERE)
        assert [e.id for e in manager.dropped("m.c.two")] == [made.id]
        restored = manager.restore(ELSEWHERE)
        assert restored.id == made.id
        with pytest.raises(ms.VersionConflict):
            manager.purge(ELSEWHERE, expected_version=made.version)
        assert manager.purge(ELSEWHERE, expected_version=restored.version)
        assert ground.store.verify() == []

    def test_replace_keeps_the_id(self, ground: Ground, sample: Sample) -> None:
        made, manager = make(ground, sample, comment="old"), ground.store.manager(sample.kind)
        again = make(ground, sample, comment="new", if_exists="replace")
        assert (again.id, again.version, again.comment) == (made.id, 2, "new")
        assert shown(manager.load(PATH)) == shown(again)
        assert make(ground, sample, comment="new", if_exists="return").version == 2

    def test_replace_is_announced_and_helped(self, ground: Ground, sample: Sample) -> None:
        make(ground, sample)
        replaced = make(ground, sample, comment="new", if_exists="replace")
        assert ground.store.manager(sample.kind).load(PATH, version=2).comment == replaced.comment == "new"

    def test_in_a_transaction(self, ground: Ground, sample: Sample) -> None:
        with ground.store.transaction() as tx:
            made = tx.manager(sample.kind).create(PATH, **sample.fields)
            tx.manager(sample.kind).alter(made, sample.one)
            assert sample.shows(tx.manager(sample.kind).alter(PATH, sample.other)) == sample.both
        assert sample.shows(ground.store.manager(sample.kind).load(PATH)) == sample.both
        assert ground.store.verify() == []

    def test_many_at_once(self, ground: Ground, sample: Sample) -> None:
        manager = ground.store.manager(sample.kind)
        rows = [{"name": f"x{n}", **sample.fields} for n in range(5)]
        assert manager.create_many("m.c.one", rows) == 5
        assert manager.create_many("m.c.one", rows, if_exists="return") == 0
        assert list(manager.names("m.c.one"))[-5:] == [f"x{n}" for n in range(5)]

    def test_a_schema_is_not_empty_whatever_kind_its_child_has(self, ground: Ground, sample: Sample) -> None:
        """Field case 23."""
        make(ground, sample, "m.c.two.x")
        before = ground.store.schemas.load("m.c.two")
        with pytest.raises(ms.NotEmpty):
            ground.store.schemas.drop("m.c.two")
        assert ground.store.schemas.load("m.c.two") == before
        assert ground.store.schemas.drop("m.c.two", cascade=True)
        assert not ground.store.manager(sample.kind).exists("m.c.two.x")

    def test_a_disabled_catalog_admits_none(self, ground: Ground, sample: Sample) -> None:
        made = make(ground, sample)
        ground.store.catalogs.disable("m.c")
        manager = ground.store.manager(sample.kind)
        for write in (lambda: make(ground, sample, "m.c.one.y"), lambda: manager.alter(made, sample.one)):
            with pytest.raises(ms.NotInUse):
                write()

    def test_other_kinds_do_not_see_it(self, ground: Ground, sample: Sample) -> None:
        made = make(ground, sample)
        for other in SAMPLES:
            if other.kind != sample.kind:
                manager = ground.store.manager(other.kind)
                assert not manager.exists(PATH)
                assert manager.drop(PATH) is False
                with pytest.raises(ms.EntityNotFound):
                    manager.load(PATH)
                with pytest.raises(ms.InvalidArgument, match="use the manager of its kind"):
                    manager.alter(made, ms.SetComment("c"))
        assert ground.store.manager(sample.kind).load(PATH).version == 1

    def test_what_is_no_change_of_it_is_refused(self, ground: Ground, sample: Sample) -> None:
        make(ground, sample)
        foreign = ms.SetRepresentation("spark", "x") if sample.kind != "view" else ms.SetLocation("x")
        with pytest.raises(ms.InvalidArgument, match="is not a change of a"):
            ground.store.manager(sample.kind).alter(PATH, foreign)

    def test_a_wrong_depth_says_the_shape(self, ground: Ground, sample: Sample) -> None:
        with pytest.raises(ms.InvalidArgument, match=f"the path of a {sample.kind} is metalake.catalog.schema"):
            make(ground, sample, "m.c.x")


def ms_json(*changes: ms.EntityChange) -> str:
    """Return changes as an intent carries them."""
    return json.dumps(encode(changes))


class TestViews:
    def test_a_view_and_a_table_share_their_names(self, ground: Ground) -> None:
        ground.store.views.create("m.c.one.v", representations=[SQL])
        with pytest.raises(ms.EntityAlreadyExists, match=r"m\.c\.one\.v"):
            ground.store.tables.create("m.c.one.v")
        with pytest.raises(ms.EntityAlreadyExists, match="is a view"):
            ground.store.tables.create("m.c.one.v", if_exists="return")
        with pytest.raises(ms.EntityAlreadyExists):
            ground.store.tables.rename("m.c.one.t", "v")
        ground.store.topics.create("m.c.one.v")

    def test_each_dialect_stands_for_itself(self, ground: Ground) -> None:
        views = ground.store.views
        views.create("m.c.one.v", representations=[SQL])
        views.alter("m.c.one.v", ms.SetRepresentation("Trino", "SELECT 2"), ms.SetDefaultCatalog("c"))
        found = views.alter("m.c.one.v", ms.RemoveRepresentation("spark"), ms.SetDefaultSchema("s"))
        assert found.representations == (ms.SQL("trino", "SELECT 2"),)
        assert (found.default_catalog, found.default_schema) == ("c", "s")
        with pytest.raises(ms.EntityNotFound):
            views.alter("m.c.one.v", ms.RemoveRepresentation("spark"))

    def test_the_newest_dropped_of_its_kind_is_restored(self, ground: Ground) -> None:
        ground.store.tables.create("m.c.one.v")
        ground.store.tables.drop("m.c.one.v")
        ground.store.views.create("m.c.one.v")
        ground.store.views.drop("m.c.one.v")
        assert ground.store.tables.restore("m.c.one.v").kind == "table"

    @pytest.mark.parametrize(
        "fields",
        [
            {"representations": [SQL, ms.SQL("SPARK", "SELECT 2")]},
            {"representations": ["SELECT 1"]},
            {"representations": SQL},
            {"default_catalog": " "},
            {"columns": [ms.Column("a", "int"), ms.Column("a", "int")]},
        ],
    )
    def test_bad_input(self, ground: Ground, fields: dict[str, Any]) -> None:
        with pytest.raises(ms.InvalidArgument):
            ground.store.views.create("m.c.one.v", **fields)
        assert not ground.store.views.exists("m.c.one.v")

    @pytest.mark.parametrize(("dialect", "text"), [("spark", " "), ("", "q"), ("İ" * 200, "q")])
    def test_bad_queries(self, dialect: str, text: str) -> None:
        with pytest.raises(ms.InvalidArgument):
            ms.SQL(dialect, text)


class TestFunctions:
    def test_changes_of_implementations(self, ground: Ground) -> None:
        functions = ground.store.functions
        functions.create("m.c.one.f", definitions=[ms.Definition(INTS, "int", (ADD,))])
        java = ms.Implementation(
            "java", "org.example.Add", runtime="trino", jars=("s3://b/a.jar",), properties={"k": "v"}
        )
        found = functions.alter("m.c.one.f", ms.AddImplementation(INTS, java))
        assert found.definitions[0].implementations == (ADD, java)
        other = ms.Implementation("SQL", "b + a", runtime="Spark")
        found = functions.alter(
            "m.c.one.f", ms.SetImplementation(INTS, other), ms.DropImplementation(INTS, "java", runtime="trino")
        )
        assert found.definitions[0].implementations == (other,)
        with pytest.raises(ms.EntityAlreadyExists):
            functions.alter("m.c.one.f", ms.AddImplementation(INTS, ADD))
        with pytest.raises(ms.EntityNotFound):
            functions.alter("m.c.one.f", ms.DropImplementation(INTS, "java"))
        assert functions.alter("m.c.one.f", ms.DropDefinition(("int", "int"))).definitions == ()
        with pytest.raises(ms.EntityNotFound):
            functions.alter("m.c.one.f", ms.DropDefinition(("int", "int")))

    def test_a_call_never_fits_two_definitions(self, ground: Ground) -> None:
        functions = ground.store.functions
        optional = (ms.Column("a", "int"), ms.Column("b", "int", default="0"))
        functions.create("m.c.one.f", definitions=[ms.Definition(optional, "int")])
        with pytest.raises(ms.EntityAlreadyExists, match=r"\(int\)"):
            functions.alter("m.c.one.f", ms.AddDefinition(ms.Definition((ms.Column("x", "int"),), "int")))
        functions.alter("m.c.one.f", ms.AddDefinition(ms.Definition((ms.Column("x", "long"),), "int")))

    def test_a_table_function_returns_columns(self, ground: Ground) -> None:
        rows = ms.Definition(INTS, INTS)
        found = ground.store.functions.create("m.c.one.f", type="Table", definitions=[rows])
        assert (found.type, found.definitions) == ("table", (rows,))

    @pytest.mark.parametrize(
        "fields",
        [
            {"type": "window"},
            {"deterministic": 1},
            {"definitions": [ms.Definition(INTS, INTS)]},
            {"definitions": [ms.Definition(INTS, "int"), ms.Definition(INTS, "long")]},
            {"definitions": ["f"]},
            {"type": "table", "definitions": [ms.Definition(INTS, "int")]},
        ],
    )
    def test_bad_input(self, ground: Ground, fields: dict[str, Any]) -> None:
        with pytest.raises(ms.InvalidArgument):
            ground.store.functions.create("m.c.one.f", **fields)
        assert not ground.store.functions.exists("m.c.one.f")

    @pytest.mark.parametrize(
        "make",
        [
            lambda: ms.Implementation("perl", "x"),
            lambda: ms.Implementation("sql", " "),
            lambda: ms.Implementation("sql", "x", runtime=" "),
            lambda: ms.Implementation("sql", "x", jars="a.jar"),  # type: ignore[arg-type]
            lambda: ms.Implementation("sql", "x", properties={"k": 1}),  # type: ignore[dict-item]
            lambda: ms.Definition(INTS, "no type"),
            lambda: ms.Definition((ms.Column("a", "int", default="1"), ms.Column("b", "int")), "int"),
            lambda: ms.Definition(INTS, "int", (ADD, ms.Implementation("sql", "x", runtime="spark"))),
            lambda: ms.AddDefinition("f"),  # type: ignore[arg-type]
            lambda: ms.SetImplementation(INTS, "x"),  # type: ignore[arg-type]
        ],
    )
    def test_bad_values(self, make: Callable[[], object]) -> None:
        with pytest.raises(ms.InvalidArgument):
            make()
