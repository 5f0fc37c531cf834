"""Changes of tables touch only what they name, merge in either order, and survive history."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore.columns.column import Column, Node, decode_columns
from metastore.columns.types import MAX_DEPTH
from metastore.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument
from metastore.kinds.change import EntityChange, decode, encode
from metastore.kinds.table import changes as table_changes
from metastore.kinds.table.changes import (
    FIRST,
    AddColumn,
    AddIndex,
    DropColumn,
    DropIndex,
    MoveColumn,
    RenameColumn,
    RetypeColumn,
    SetAutoIncrement,
    SetColumnComment,
    SetColumnDefault,
    SetColumnNullable,
    SetFormat,
    SetLocation,
)
from metastore.kinds.table.kind import TABLE
from tests import strategies

Doc = dict[str, Any]
PATH = ("lake", "cat", "sch", "t")


def orders() -> Doc:
    columns = [
        Column("id", "long", nullable=False),
        Column("ts", "timestamp", comment="when"),
        Column("items", "list<struct<sku: string comment 'code', price: decimal(10,2)>>"),
        Column("tags", "map<string,int>"),
        Column("address", "struct<city: string, `zip code`: int>"),
        Column("a.b", "int"),
    ]
    fields = {
        "columns": columns,
        "partitioning": ["day(ts)", "address.city"],
        "distribution": "hash(16, id)",
        "sort_orders": ["ts desc"],
        "location": "s3://b",
        "format": "orc",
    }
    return TABLE.document(None, {}, fields)


def applied(doc: Doc, *changes: EntityChange) -> Doc:
    draft = copy.deepcopy(doc)
    for change in changes:
        change.apply(draft, PATH)
    return draft


def names(doc: Doc) -> list[str]:
    return [node["name"] for node in doc["columns"]]


def column(doc: Doc, *path: str) -> Column:
    columns = decode_columns(doc["columns"])
    for name in path[:-1]:
        columns = next(c for c in columns if c.name == name).fields
    return next(c for c in columns if c.name == path[-1])


def test_columns_are_added_where_they_belong() -> None:
    doc = applied(
        orders(),
        AddColumn("last", "INT", nullable=False, default="0", comment="c", auto_increment=True),
        AddColumn("first", "date", after=FIRST),
        AddColumn("mid", "map<string,int>", after="id"),
        AddColumn("address.street", "string", after="city"),
        AddColumn(("items", "element", "n.o"), "int", after=FIRST),
    )
    assert names(doc) == ["first", "id", "mid", "ts", "items", "tags", "address", "a.b", "last"]
    assert column(doc, "last") == Column("last", "int", nullable=False, default="0", comment="c", auto_increment=True)
    assert column(doc, "address").type == "struct<city: string, street: string, `zip code`: int>"
    assert column(doc, "items").type == "list<struct<`n.o`: int, sku: string, price: decimal(10,2)>>"
    added = [column(doc, *p).id for p in (("last",), ("first",), ("mid",), ("mid", "key"), ("address", "street"))]
    assert added == [14, 15, 16, 17, 19]
    assert doc["last_column_id"] == 20


def test_a_rename_carries_the_references_along() -> None:
    doc = applied(orders(), AddIndex("pk", ("id", "address.zip code")), AddIndex("u", ("`a.b`",), type="unique"))
    doc = applied(
        doc,
        RenameColumn("ts", "at time"),
        RenameColumn("address", "home"),
        RenameColumn(("home", "zip code"), "zip"),
        RenameColumn("id", "i.d"),
        RenameColumn("`a.b`", "b"),
    )
    assert doc["partitioning"] == ["day(`at time`)", "home.city"]
    assert doc["sort_orders"] == ["`at time` desc nulls last"]
    assert doc["distribution"] == "hash(16, `i.d`)"
    assert [index["columns"] for index in doc["indexes"]] == [["`i.d`", "home.zip"], ["b"]]
    assert (column(doc, "at time").id, column(doc, "at time").comment) == (2, "when")


def test_a_rename_to_the_same_name_changes_nothing() -> None:
    assert applied(orders(), RenameColumn("id", "id")) == orders()


def test_a_column_named_even() -> None:
    """As a distribution, the word names no column; elsewhere it does."""
    layout = {"partitioning": ["even"], "distribution": "even", "sort_orders": ["even"]}
    doc = TABLE.document(None, {}, {"columns": [Column("even", "int"), Column("b", "int")], **layout})
    renamed = applied(doc, RenameColumn("even", "odd"))
    assert (renamed["partitioning"], renamed["distribution"]) == (["odd"], "even")
    assert renamed["sort_orders"] == ["odd asc nulls first"]
    with pytest.raises(InvalidArgument, match="the partitioning 'even' refers to even"):
        applied(doc, DropColumn("even"))


def test_a_drop_frees_the_name_but_not_the_id() -> None:
    doc = applied(orders(), DropColumn("tags"), AddColumn("tags", "int"), DropColumn("address.zip code"))
    assert column(doc, "tags").id == orders()["last_column_id"] + 1
    assert column(doc, "address").type == "struct<city: string>"


def test_the_last_column_can_be_dropped() -> None:
    doc = TABLE.document(None, {}, {"columns": [Column("a", "int")]})
    assert applied(doc, DropColumn("a"))["columns"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (DropColumn("ts"), r"column ts cannot be dropped: the partitioning 'day\(ts\)' refers to ts;"),
        (DropColumn("id"), r"the distribution 'hash\(16, id\)' refers to id"),
        (DropColumn("address.city"), "the partitioning 'address.city' refers to address.city"),
        (DropColumn("address"), "the partitioning 'address.city' refers to"),
        (DropColumn("a.b.c"), "no column"),
        (RetypeColumn("address", "struct<street: string>"), "cannot become .* refers to address.city"),
    ],
)
def test_a_column_that_the_layout_needs_stays(change: EntityChange, message: str) -> None:
    with pytest.raises((InvalidArgument, EntityNotFound), match=message):
        applied(orders(), change)


def test_an_indexed_or_sorted_column_stays() -> None:
    doc = {**orders(), "partitioning": [], "distribution": None}
    with pytest.raises(InvalidArgument, match="the sort order 'ts desc nulls last' refers to ts"):
        applied(doc, DropColumn("ts"))
    with pytest.raises(InvalidArgument, match="the index 'pk' refers to id"):
        applied(doc, AddIndex("pk", ("id",)), DropColumn("id"))


def test_a_retype_keeps_what_keeps_its_name() -> None:
    doc = applied(orders(), SetColumnDefault("items.element.sku", "'x'"), SetColumnComment("items", "all"))
    after = applied(
        doc, RetypeColumn("items", "list<struct<price: decimal(12,2) not null, sku: varchar(9), new: int>>")
    )
    price, sku, new = column(after, "items", "element").fields
    old = column(orders(), "items", "element")
    assert (column(after, "items").id, column(after, "items").comment) == (column(doc, "items").id, "all")
    assert (price.id, price.type, price.nullable) == (old.fields[1].id, "decimal(12,2)", False)
    assert (sku.id, sku.type, sku.comment, sku.default) == (old.fields[0].id, "varchar(9)", "code", "'x'")
    assert new.id == doc["last_column_id"] + 1 == after["last_column_id"]
    assert applied(orders(), RetypeColumn("ts", "date"))["partitioning"][0] == "day(ts)"
    assert "fields" not in applied(orders(), RetypeColumn("tags", "int"))["columns"][3]


def test_moves() -> None:
    assert names(applied(orders(), MoveColumn("tags", FIRST)))[:2] == ["tags", "id"]
    assert names(applied(orders(), MoveColumn("id", "tags"))) == ["ts", "items", "tags", "id", "address", "a.b"]
    assert applied(orders(), MoveColumn("ts", "id")) == orders()
    moved = applied(orders(), MoveColumn("address.zip code", FIRST))
    assert [f.name for f in column(moved, "address").fields] == ["zip code", "city"]


def test_a_value_that_is_set_back_leaves_no_trace() -> None:
    there = (
        SetColumnComment("id", "c"),
        SetColumnDefault("id", "0"),
        SetColumnNullable("tags.value", False),
        SetAutoIncrement("id", True),
        SetLocation("x"),
        SetFormat("Lance"),
        AddIndex("u", ("id",), type="unique"),
    )
    back = (
        SetColumnComment("id", None),
        SetColumnDefault("id", None),
        SetColumnNullable("tags.value", True),
        SetAutoIncrement("id", False),
        SetLocation("s3://b"),
        SetFormat("ORC"),
        DropIndex("u"),
    )
    changed = applied(orders(), *there)
    assert column(changed, "id") == Column("id", "long", nullable=False, default="0", comment="c", auto_increment=True)
    assert column(changed, "tags").type == "map<string,int not null>"
    assert (changed["location"], changed["format"]) == ("x", "lance")
    assert changed["indexes"] == [{"name": "u", "columns": ["id"], "type": "unique"}]
    assert applied(changed, *back) == orders()
    assert applied(applied(orders(), SetLocation(None)), SetFormat(None))["location"] is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (AddColumn("id", "int"), EntityAlreadyExists, "lake.cat.sch.t already has the column id;"),
        (AddColumn("address.city", "int"), EntityAlreadyExists, "the column address.city"),
        (AddColumn("no.x", "int"), EntityNotFound, "lake.cat.sch.t has no column no;"),
        (AddColumn("id.x", "int"), InvalidArgument, "id is of the type long; only a struct"),
        (AddColumn("tags.x", "int"), InvalidArgument, "tags is of the type map; only a struct"),
        (AddColumn("items.x", "int"), InvalidArgument, "items is of the type list; only a struct"),
        (AddColumn("x", "integer"), InvalidArgument, "expected a type"),
        (AddColumn("x", "int", after="no"), EntityNotFound, "no column no"),
        (AddColumn("address.x", "int", after="id"), EntityNotFound, "no column address.id"),
        (AddColumn("x", "int", default=3), InvalidArgument, "default must be a string"),  # type: ignore[arg-type]
        (AddColumn("", "int"), InvalidArgument, "must not be empty"),
        (AddColumn("address.x", "list<" * 99 + "int" + ">" * 99), InvalidArgument, "more than 100 types"),
        (RenameColumn("no", "x"), EntityNotFound, "no column no"),
        (RenameColumn("id", "ts"), EntityAlreadyExists, "the column ts"),
        (RenameColumn("id", ""), InvalidArgument, "must not be empty"),
        (RenameColumn("tags.value", "x"), InvalidArgument, "cannot be renamed"),
        (DropColumn("no"), EntityNotFound, "no column no"),
        (DropColumn("items.element"), InvalidArgument, "cannot be dropped"),
        (RetypeColumn("no", "int"), EntityNotFound, "no column"),
        (RetypeColumn("id", "integer"), InvalidArgument, "expected a type"),
        (RetypeColumn("tags.value", "list<" * 99 + "int" + ">" * 99), InvalidArgument, "more than 100"),
        (MoveColumn("no", FIRST), EntityNotFound, "no column"),
        (MoveColumn("id", "no"), EntityNotFound, "no column no"),
        (MoveColumn("id", "id"), InvalidArgument, "after itself"),
        (MoveColumn("id", None), InvalidArgument, "a name must be a string"),  # type: ignore[arg-type]
        (MoveColumn("tags.value", FIRST), InvalidArgument, "cannot be moved"),
        (SetColumnComment("no", "c"), EntityNotFound, "no column"),
        (SetColumnComment("id", 3), InvalidArgument, "a comment must be a string"),  # type: ignore[arg-type]
        (SetColumnDefault("id", 3), InvalidArgument, "a default must be a string"),  # type: ignore[arg-type]
        (SetColumnNullable("id", None), InvalidArgument, "nullable must be"),  # type: ignore[arg-type]
        (SetColumnNullable("tags.key", True), InvalidArgument, "never null"),
        (SetAutoIncrement("id", 1), InvalidArgument, "auto_increment must be"),  # type: ignore[arg-type]
        (AddIndex("i", ("no",)), InvalidArgument, "refers to no,"),
        (DropIndex("no"), EntityNotFound, "lake.cat.sch.t has no index no"),
        (SetLocation(""), InvalidArgument, "a location must not be blank"),
        (SetFormat(3), InvalidArgument, "a format must be a string"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused(change: EntityChange, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        applied(orders(), change)


def test_an_index_twice_is_refused() -> None:
    doc = applied(orders(), AddIndex("pk", ("id",)))
    with pytest.raises(EntityAlreadyExists, match="the index pk"):
        applied(doc, AddIndex("pk", ("ts",), type="unique"))
    with pytest.raises(InvalidArgument, match="second primary"):
        applied(doc, AddIndex("pk2", ("ts",)))
    with pytest.raises(InvalidArgument, match="'primary' or 'unique'"):
        AddIndex("i", ("id",), type="other")  # type: ignore[arg-type]


def test_a_type_can_be_as_deep_as_allowed() -> None:
    deep = "list<" * (MAX_DEPTH - 2) + "int" + ">" * (MAX_DEPTH - 2)
    assert column(applied(orders(), AddColumn("address.x", deep)), "address", "x").type == deep


EXAMPLES = (
    AddColumn(("a", "b.c"), "int", nullable=False, default="1", comment="c", after=FIRST, auto_increment=True),
    AddColumn("a", "int", after="b"),
    RenameColumn("a", "b"),
    DropColumn(("a", "b")),
    RetypeColumn("a", "list<int>"),
    MoveColumn("a", FIRST),
    SetColumnComment("a", None),
    SetColumnDefault("a", "now()"),
    SetColumnNullable("a", False),
    SetAutoIncrement("a", True),
    AddIndex("pk", ("a", ("b", "c.d")), type="unique"),  # type: ignore[arg-type]
    DropIndex("pk"),
    SetLocation("s3://b"),
    SetFormat(None),
)


def test_every_change_survives_history() -> None:
    assert decode(json.loads(json.dumps(encode(EXAMPLES)))) == EXAMPLES
    assert {type(change).__name__ for change in EXAMPLES} == set(table_changes.__all__) - {"FIRST"}
    assert len(set(EXAMPLES)) == len(EXAMPLES)


def paths(nodes: list[Node], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    own = [(*above, node["name"]) for node in nodes]
    return own + [p for path, node in zip(own, nodes, strict=True) for p in paths(node.get("fields", []), path)]


def changes_of(path: tuple[str, ...]) -> st.SearchStrategy[EntityChange]:
    every: list[st.SearchStrategy[EntityChange]] = [
        st.builds(SetColumnComment, st.just(path), strategies.comments),
        st.builds(SetColumnDefault, st.just(path), strategies.comments),
        st.builds(SetColumnNullable, st.just(path), st.just(False)),
        st.builds(SetAutoIncrement, st.just(path), st.booleans()),
        st.builds(RetypeColumn, st.just(path), strategies.atomic_types),
    ]
    if len(path) == 1:
        every += [st.builds(DropColumn, st.just(path)), st.just(RenameColumn(path, path[0][:200] + " renamed"))]
    return st.one_of(every)


@given(strategies.table_docs, st.data())
def test_changes_of_two_columns_merge_in_either_order(doc: Doc, data: st.DataObject) -> None:
    one, other = data.draw(st.permutations(names(doc)).map(lambda found: found[:2]))
    first = data.draw(changes_of(data.draw(st.sampled_from([p for p in paths(doc["columns"]) if p[0] == one]))))
    second = data.draw(changes_of(data.draw(st.sampled_from([p for p in paths(doc["columns"]) if p[0] == other]))))
    assert applied(doc, first, second) == applied(doc, second, first)


@given(strategies.table_docs, strategies.names, strategies.names, strategies.types, strategies.types)
def test_two_columns_added_at_once_both_land(doc: Doc, one: str, other: str, kind: str, kind2: str) -> None:
    first, second = AddColumn((one,), kind), AddColumn((other,), kind2)
    if len({one, other, *names(doc)}) < 2 + len(names(doc)):
        with pytest.raises(EntityAlreadyExists):
            applied(doc, first, second)
        return
    there, back = applied(doc, first, second), applied(doc, second, first)
    assert set(decode_columns(there["columns"])) == set(decode_columns(back["columns"]))
    assert there["last_column_id"] == back["last_column_id"]


@given(strategies.table_docs, st.data())
def test_a_retype_to_the_same_type_changes_nothing(doc: Doc, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths(doc["columns"])))
    assert applied(doc, RetypeColumn(path, column(doc, *path).type)) == doc
