"""Odd values anywhere in the public surface: whatever is refused is refused with a MetastoreError, and in its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn
from unittest.mock import Mock
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import metastore as ms
from tests.bad_input.conftest import TABLE, prepare


class Liar(str):
    """Says something else than its characters."""

    __slots__ = ()

    def __str__(self) -> str:
        return "lie"

    def __repr__(self) -> str:
        return "lie\nof two lines"

    def __contains__(self, other: object) -> bool:
        return True

    def replace(self, *_: Any) -> str:
        return "replaced"

    def split(self, *_: Any) -> list[str]:
        return ["m", "c", "other"]

    def lower(self) -> str:
        return "lowered"

    def strip(self, *_: Any) -> str:
        return ""

    def isascii(self) -> bool:
        return True

    def encode(self, *_: Any) -> bytes:
        return b"encoded"


class Unwritable:
    """Cannot be shown."""

    def __repr__(self) -> NoReturn:
        raise RuntimeError("no")

    __str__ = __repr__


class Two(int):
    """Compares as two, and is more."""

    def __repr__(self) -> str:
        return "lie"

    __str__ = __repr__


class Bag(dict[Any, Any]):
    """A dict of its own kind."""


HUGE = 10**5000
DEEP: Any = "x"
for _ in range(900):
    DEEP = [DEEP]
ROUND: list[Any] = []
ROUND.append(ROUND)

FIXED: list[Any] = [
    None, True, 0, -1, HUGE, -HUGE, 2**63, 2**31, 1.5, float("nan"), float("inf"), b"x", bytearray(b"x"), "", " ", ".",
    "`", "``", "a.b", "\x00", "a\x00b", "\ud800", "a\udfffb", "\u202e", "\x85", "\x7f", "x" * 3000, Liar("liar"),
    Liar("m.c.s"), Liar("x\ud800"), Two(2), Unwritable(), object(), object, Mock(spec=str), Mock(spec=int), [], (), {},
    [HUGE], {"k": HUGE}, {HUGE: "k"}, {"k": "\ud800"}, {"\ud800": "v"}, {Liar("k"): Liar("v")}, Bag(k="v"), DEEP, ROUND,
    {"k": DEEP}, ("m",), ("m", HUGE), ("m", "c", "\ud800"), UUID(int=0), ms.new_operation_id(), "0" * 32, "\ud800" * 32,
    "é" * 36, [Unwritable()], {"k": Unwritable()}, lambda: None, iter(()), ms.Column("a", "int"), ms.SetComment("x"),
]  # fmt: skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ODD = st.sampled_from(FIXED) | JSON | st.text(st.characters(), max_size=8).map(Liar)

Call = Callable[[Any, Any], Any]

CALLS: dict[str, Call] = {
    "metalakes.create": lambda s, v: s.metalakes.create(v),
    "catalogs.create": lambda s, v: s.catalogs.create(v, type="relational"),
    "catalog type": lambda s, v: s.catalogs.create("m.x1", type=v),
    "catalog provider": lambda s, v: s.catalogs.create("m.x2", type="model", provider=v),
    "catalog fold": lambda s, v: s.catalogs.create("m.x3", type="model", fold_case=v),
    "schemas.create": lambda s, v: s.schemas.create(("m", "c", v)),
    "schemas.create path": lambda s, v: s.schemas.create(v),
    "schemas.create parent": lambda s, v: s.schemas.create("x", parent=v),
    "name below a parent": lambda s, v: s.schemas.create(v, parent=s.catalogs.load("m.c")),
    "comment": lambda s, v: s.schemas.create("m.c.s1", comment=v),
    "properties": lambda s, v: s.schemas.create("m.c.s2", properties=v),
    "a property": lambda s, v: s.schemas.create("m.c.s3", properties={"k": v}),
    "if_exists": lambda s, v: s.schemas.create("m.c.s", if_exists=v),
    "parents": lambda s, v: s.schemas.create("m.c.n.n", parents=v),
    "principal": lambda s, v: s.schemas.create("m.c.s4", principal=v),
    "deadline": lambda s, v: s.schemas.create("m.c.s5", deadline=v),
    "lease": lambda s, v: s.schemas.create("m.c.s6", lease=v),
    "operation id": lambda s, v: s.schemas.create("m.c.s7", operation_id=v),
    "create_many": lambda s, v: s.schemas.create_many("m.c", v),
    "create_many name": lambda s, v: s.schemas.create_many("m.c", [{"name": v}]),
    "create_many field": lambda s, v: s.schemas.create_many("m.c", [{"name": "s8", "comment": v}]),
    "create_many parent": lambda s, v: s.schemas.create_many(v, [{"name": "s9"}]),
    "columns": lambda s, v: s.tables.create("m.c.s.t1", columns=v),
    "a column": lambda s, v: s.tables.create("m.c.s.t2", columns=[v]),
    "column name": lambda s, v: s.tables.create("m.c.s.t3", columns=[ms.Column(v, "int")]),
    "column type": lambda s, v: s.tables.create("m.c.s.t4", columns=[ms.Column("a", v)]),
    "column default": lambda s, v: s.tables.create("m.c.s.t5", columns=[ms.Column("a", "int", default=v)]),
    "column comment": lambda s, v: s.tables.create("m.c.s.t6", columns=[ms.Column("a", "int", comment=v)]),
    "column flag": lambda s, v: s.tables.create("m.c.s.t7", columns=[ms.Column("a", "int", nullable=v)]),
    "partitioning": lambda s, v: s.tables.create("m.c.s.t8", columns=[ms.Column("a", "int")], partitioning=v),
    "a partitioning": lambda s, v: s.tables.create("m.c.s.t9", columns=[ms.Column("a", "int")], partitioning=[v]),
    "distribution": lambda s, v: s.tables.create("m.c.s.t10", columns=[ms.Column("a", "int")], distribution=v),
    "sort orders": lambda s, v: s.tables.create("m.c.s.t11", columns=[ms.Column("a", "int")], sort_orders=[v]),
    "indexes": lambda s, v: s.tables.create("m.c.s.t12", columns=[ms.Column("a", "int")], indexes=v),
    "index": lambda s, v: s.tables.create("m.c.s.t13", columns=[ms.Column("a", "int")], indexes=[ms.Index(v, ("a",))]),
    "index columns": lambda s, v: s.tables.create("m.c.s.t14", indexes=[ms.Index("i", v)]),
    "index type": lambda s, v: ms.Index("i", ("a",), type=v),
    "location": lambda s, v: s.tables.create("m.c.s.t15", location=v),
    "format": lambda s, v: s.tables.create("m.c.s.t16", format=v),
    "partition name": lambda s, v: s.partitions.create(TABLE, v, values={}),
    "partition values": lambda s, v: s.partitions.create(TABLE, "p", values=v),
    "partition value": lambda s, v: s.partitions.create(TABLE, "p1", values={"a": v}),
    "partitions.drop": lambda s, v: s.partitions.drop(TABLE, v),
    "partitions.load": lambda s, v: s.partitions.load(TABLE, v),
    "partitions of": lambda s, v: s.partitions.list(v),
    "statistic": lambda s, v: s.statistics.put_many(TABLE, [s.statistics.row("st", {"k": v})]),
    "statistic values": lambda s, v: s.statistics.row("st", v),
    "fileset type": lambda s, v: s.filesets.create("m.c.s.f1", type=v),
    "locations": lambda s, v: s.filesets.create("m.c.s.f2", locations=v),
    "a location": lambda s, v: s.filesets.create("m.c.s.f3", locations={"a": v}),
    "topics": lambda s, v: s.topics.create(("m", "c", "s", v)),
    "views": lambda s, v: s.views.create("m.c.s.v1", representations=v),
    "a query": lambda s, v: s.views.create("m.c.s.v2", representations=[ms.SQL("spark", v)]),
    "a dialect": lambda s, v: s.views.create("m.c.s.v3", representations=[ms.SQL(v, "SELECT 1")]),
    "default schema": lambda s, v: s.views.create("m.c.s.v4", default_schema=v),
    "functions": lambda s, v: s.functions.create("m.c.s.g1", definitions=v),
    "returns": lambda s, v: s.functions.create("m.c.s.g2", definitions=[ms.Definition((), v)]),
    "parameters": lambda s, v: ms.Definition(v),
    "language": lambda s, v: ms.Implementation(v, "x"),
    "body": lambda s, v: ms.Implementation("sql", v),
    "runtime": lambda s, v: ms.Implementation("sql", "x", runtime=v),
    "jars": lambda s, v: ms.Implementation("java", "x", jars=v),
    "implementation properties": lambda s, v: ms.Implementation("sql", "x", properties=v),
    "uris": lambda s, v: s.models.add_version("m.c.s.mo", uris=v),
    "a uri": lambda s, v: s.models.add_version("m.c.s.mo", uris={"u": v}),
    "aliases": lambda s, v: s.models.add_version("m.c.s.mo", uris={"u": "x"}, aliases=v),
    "an alias": lambda s, v: s.models.set_alias("m.c.s.mo", v, 1),
    "alias of": lambda s, v: s.models.set_alias("m.c.s.mo", "al", v),
    "load_version": lambda s, v: s.models.load_version("m.c.s.mo", v),
    "alter_version": lambda s, v: s.models.alter_version("m.c.s.mo", v, ms.SetComment("x")),
    "alter_version change": lambda s, v: s.models.alter_version("m.c.s.mo", 1, v),
    "drop_version": lambda s, v: s.models.drop_version("m.c.s.mo", v),
    "load": lambda s, v: s.tables.load(v),
    "load version": lambda s, v: s.tables.load(TABLE, version=v),
    "load_many": lambda s, v: s.tables.load_many(v),
    "load_many path": lambda s, v: s.tables.load_many([v]),
    "exists": lambda s, v: s.tables.exists(v),
    "list": lambda s, v: s.tables.list(v),
    "page size": lambda s, v: s.tables.list("m.c.s", page_size=v),
    "names": lambda s, v: s.tables.names(v),
    "dropped": lambda s, v: s.tables.dropped(v),
    "history": lambda s, v: s.tables.history(v),
    "alter": lambda s, v: s.tables.alter(v, ms.SetComment("x")),
    "a change": lambda s, v: s.tables.alter(TABLE, v),
    "expected_version": lambda s, v: s.tables.alter(TABLE, ms.SetComment("x"), expected_version=v),
    "SetComment": lambda s, v: s.tables.alter(TABLE, ms.SetComment(v)),
    "SetProperty": lambda s, v: s.tables.alter(TABLE, ms.SetProperty("k", v)),
    "SetProperty key": lambda s, v: s.tables.alter(TABLE, ms.SetProperty(v, "x")),
    "SetProperty expected": lambda s, v: s.tables.alter(TABLE, ms.SetProperty("k", "x", expected=v)),
    "RemoveProperty": lambda s, v: s.tables.alter(TABLE, ms.RemoveProperty(v)),
    "AddColumn": lambda s, v: s.tables.alter(TABLE, ms.AddColumn(v, "int")),
    "AddColumn type": lambda s, v: s.tables.alter(TABLE, ms.AddColumn("new", v)),
    "AddColumn after": lambda s, v: s.tables.alter(TABLE, ms.AddColumn("new2", "int", after=v)),
    "RenameColumn": lambda s, v: s.tables.alter(TABLE, ms.RenameColumn("name", v)),
    "MoveColumn": lambda s, v: s.tables.alter(TABLE, ms.MoveColumn("id", v)),
    "RetypeColumn": lambda s, v: s.tables.alter(TABLE, ms.RetypeColumn("id", v)),
    "SetColumnDefault": lambda s, v: s.tables.alter(TABLE, ms.SetColumnDefault("id", v)),
    "SetColumnNullable": lambda s, v: s.tables.alter(TABLE, ms.SetColumnNullable("id", v)),
    "SetAutoIncrement": lambda s, v: s.tables.alter(TABLE, ms.SetAutoIncrement("id", v)),
    "AddIndex": lambda s, v: s.tables.alter(TABLE, ms.AddIndex("i", v)),
    "AddIndex type": lambda s, v: s.tables.alter(TABLE, ms.AddIndex("i", ("id",), type=v)),
    "DropIndex": lambda s, v: s.tables.alter(TABLE, ms.DropIndex(v)),
    "SetLocation": lambda s, v: s.tables.alter(TABLE, ms.SetLocation(v)),
    "SetFormat": lambda s, v: s.tables.alter(TABLE, ms.SetFormat(v)),
    "change with an id": lambda s, v: s.tables.alter(TABLE, ms.SetComment(v), operation_id=ms.new_operation_id()),
    "id and expected": lambda s, v: s.tables.alter(TABLE, operation_id=ms.new_operation_id(), expected_version=v),
    "rename": lambda s, v: s.topics.rename("m.c.s.to", v),
    "rename target": lambda s, v: s.tables.rename(v, "x"),
    "drop": lambda s, v: s.tables.drop(v),
    "restore": lambda s, v: s.schemas.restore(v),
    "restore id": lambda s, v: s.schemas.restore("m.c.none", id=v),
    "restore to": lambda s, v: s.schemas.restore("m.c.gone", to=v),
    "purge": lambda s, v: s.topics.purge(v),
    "disable": lambda s, v: s.catalogs.disable(v),
    "changes after": lambda s, v: s.changes(after=v),
    "changes limit": lambda s, v: s.changes(limit=v),
    "outcome": lambda s, v: s.outcome(v),
    "find": lambda s, v: list(s.find(v)),
    "find kind": lambda s, v: list(s.find(kind=v)),
    "find name": lambda s, v: list(s.find(name=v)),
    "find properties": lambda s, v: list(s.find(properties=v)),
    "find recursive": lambda s, v: list(s.find(recursive=v)),
    "tags on": lambda s, v: s.tags.on(v),
    "tags inherited": lambda s, v: s.tags.on(TABLE, inherited=v),
    "tags column": lambda s, v: s.tags.on(TABLE, column=v),
    "crawl state": lambda s, v: s.crawls.row("crawl", v, {}),
    "gc": lambda s, v: s.gc(retention=v),
    "gc keep": lambda s, v: s.gc(keep_versions=v),
    "manager": lambda s, v: s.manager(v),
    "export": lambda s, v: s.export_to(v) if not isinstance(v, str | int) else None,
    "import": lambda s, v: s.import_from(v) if not isinstance(v, str | int) else None,
    "transaction principal": lambda s, v: s.transaction(principal=v),
    "run deadline": lambda s, v: s.run(lambda tx: None, deadline=v),
    "run lease": lambda s, v: s.run(lambda tx: None, v),
    "exclusive": lambda s, v: s.schemas.exclusive(v),
    "exclusive ttl": lambda s, v: s.schemas.exclusive("m.c.s", ttl=v),
}  # fmt: skip


@pytest.fixture(scope="module", params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def odd_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ms.Store]:
    """Give a store whose content is of no concern."""
    if request.param == "memory":
        url = "memory://"
    elif request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('odd') / 'metastore.db'}"
    else:
        url = request.getfixturevalue("postgres_databases").create_database()
        ms.migrate(url)
    with ms.open(url, principal="tester", deadline=10.0) as store:
        prepare(store)
        store.models.create("m.c.s.mo")
        store.models.add_version("m.c.s.mo", uris={"u": "x"})
        store.topics.create("m.c.s.to")
        yield store


def _restore_ground(store: ms.Store) -> None:
    """Make again what a call may have taken away."""
    with suppress(ms.MetastoreError):
        store.catalogs.enable("m.c")
    if not store.tables.exists(TABLE):
        store.tables.create(TABLE, columns=[ms.Column("id", "long"), ms.Column("name", "string")])
    if not store.topics.exists("m.c.s.to"):
        store.topics.create("m.c.s.to")


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=ODD)
def _fuzz(name: str, store: ms.Store, value: Any) -> None:
    _try(name, store, value)


def _try(name: str, store: ms.Store, value: Any) -> None:
    try:
        found = CALLS[name](store, value)
        if isinstance(found, Iterator):
            for _ in found:
                pass
    except ms.MetastoreError as error:
        message, late = str(error), type(error) is ms.DeadlineExceeded
    else:
        message, late = "none", False
    # a deadline of less than the call takes is a deadline all the same
    assert not late or "deadline" in name, "nobody is in the way: the value is refused, or taken"
    assert len(message.splitlines()) == 1
    message.encode()  # it can be shown


@pytest.mark.one_in(3)
@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("name", CALLS)
def test_odd_values_are_refused_in_our_words(odd_store: ms.Store, name: str) -> None:
    _restore_ground(odd_store)
    for value in FIXED:
        _try(name, odd_store, value)
    _fuzz(name, odd_store)


def test_what_was_accepted_is_sound(odd_store: ms.Store) -> None:
    """After all of that: rows, history and feed say the same, in plain strings."""
    assert odd_store.verify() == []
    for change in odd_store.changes():
        for text in (change.principal, change.path_after, change.path_before):
            assert text is None or type(text) is str


def _in_bulk(store: ms.Store, name: str) -> ms.Entity:
    store.schemas.create_many("m.c", [{"name": name}])
    return store.schemas.load(("m", "c", str.__str__(name)))


NAMED: dict[str, Callable[[ms.Store, str], ms.Entity]] = {
    "by path": lambda s, v: s.schemas.create(("m", "c", v)),
    "below a parent": lambda s, v: s.schemas.create(v, parent=s.catalogs.load("m.c")),
    "by rename": lambda s, v: s.schemas.rename(s.schemas.create("m.c.before"), v),
    "in bulk": _in_bulk,
}


@pytest.mark.parametrize("make", NAMED.values(), ids=NAMED)
def test_a_subclass_of_str_is_its_characters(ground: ms.Store, make: Callable[[ms.Store, str], ms.Entity]) -> None:
    made = make(ground, Liar("real"))
    assert (made.name, type(made.name), made.path) == ("real", str, "m.c.real")
    assert [v.path_after for v in ground.schemas.history("m.c.real")][-1] == "m.c.real"
    assert ground.schemas.load("m.c.real").id == made.id
    assert ground.verify() == []


def test_a_principal_is_its_characters(ground: ms.Store) -> None:
    assert ground.schemas.create("m.c.x", principal=Liar("ada")).created_by == "ada"
    with ground.transaction(principal=Liar("ada")) as tx:
        assert type(tx.schemas.create("m.c.y").created_by) is str
    assert ground.schemas.load("m.c.y").created_by == "ada"


def test_a_mapping_of_its_own_kind(ground: ms.Store) -> None:
    properties: Mapping[str, str] = Bag({Liar("k"): Liar("v")})
    assert dict(ground.schemas.create("m.c.x", properties=properties).properties) == {"k": "v"}


TOO_LONG: dict[str, Callable[[ms.Store], Any]] = {
    "a principal": lambda s: s.schemas.create("m.c.x", principal="p" * 1025),
    "a principal of a transaction": lambda s: s.transaction(principal="p" * 1025),
    "a path": lambda s: s.schemas.load(("m", "c", *["s"] * 999)),
    "changes": lambda s: s.tables.alter(TABLE, *[ms.SetProperty("k", "v" * 1000) for _ in range(4400)]),
    "changes of a version": lambda s: s.tables.alter(TABLE, ms.SetProperty("k", "v" * (5 << 20))),
}


@pytest.mark.parametrize("call", TOO_LONG.values(), ids=TOO_LONG)
def test_sizes_have_limits(kept: ms.Store, call: Callable[[ms.Store], Any]) -> None:
    with pytest.raises(ms.InvalidArgument, match="at most"):
        call(kept)


def test_what_is_just_short_enough(ground: ms.Store) -> None:
    assert ground.schemas.create("m.c.x", principal="p" * 1024).created_by == "p" * 1024
    few = [ms.SetProperty("k", "v" * 1000) for _ in range(3500)]
    assert ground.tables.alter(TABLE, *few).version == 2
