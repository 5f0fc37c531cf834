"""Partitioning, distribution, sort orders and indexes: one spelling, only columns that are there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore.columns.column import Column, columns_doc
from metastore.errors import InvalidArgument
from metastore.kinds.table.kind import TABLE
from metastore.kinds.table.layout import (
    Index,
    check_distribution,
    check_indexes,
    check_partitioning,
    check_sort_orders,
    decode_indexes,
    references,
    renamed,
)
from tests import strategies

COLUMNS = (
    Column("id", "long"),
    Column("ts", "timestamp"),
    Column("region", "string"),
    Column("my col", "int"),
    Column("a.b", "int"),
    Column("16", "int"),
    Column("desc", "int"),
    Column("user-id", "int"),
    Column("s", "struct<x: int, `y z`: date>"),
)
NODES = columns_doc(COLUMNS)["columns"]

PARTITIONING = {
    "region": "region",
    " region ": "region",
    "BUCKET( 16,id )": "bucket(16, id)",
    "bucket(4, id, region)": "bucket(4, id, region)",
    "truncate(4, region)": "truncate(4, region)",
    "Year(ts)": "year(ts)",
    "month(ts)": "month(ts)",
    "day(ts)": "day(ts)",
    "hour(ts)": "hour(ts)",
    "list(region)": "list(region)",
    "list(region, id)": "list(region, id)",
    "range(ts)": "range(ts)",
    "Hash_Fn(id,region)": "Hash_Fn(id, region)",
    "f(id, -3, 1.5, 'it''s, (x)')": "f(id, -3, 1.5, 'it''s, (x)')",
    "`my col`": "`my col`",
    "`region`": "region",
    "`a.b`": "`a.b`",
    "`16`": "`16`",
    "user-id": "user-id",
    "s.x": "s.x",
    "s . `y z`": "s.`y z`",
    "desc": "desc",
}


@pytest.mark.parametrize(("text", "canonical"), PARTITIONING.items())
def test_partitioning(text: str, canonical: str) -> None:
    assert check_partitioning([text], NODES) == [canonical]
    assert check_partitioning([canonical], NODES) == [canonical]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column or a function, found the end"),
        ("16", "expected a column's name"),
        ("'region'", "expected a column's name"),
        ("nothing", "refers to nothing, which is not a column; there are: id, ts, region"),
        ("year(nothing)", "refers to nothing"),
        ("s.nothing", "refers to s.nothing"),
        ("ID", "refers to ID"),
        ("id ts", "ends in 'ts'; only a column or a function"),
        ("id, ts", "expected the end of the text, found ','"),
        ("year(ts", r"character 8 expected ',' or '\)', found the end"),
        ("year()", "expected a column's name"),
        ("year(ts, id)", "year takes one column"),
        ("year(3)", "year takes one column"),
        ("bucket(id)", "the first argument of bucket must be an integer of at least 1, as in 'bucket"),
        ("bucket(0, id)", "the first argument of bucket must be an integer of at least 1"),
        ("bucket(1.5, id)", "the first argument of bucket must be an integer of at least 1"),
        ("bucket(16)", "bucket takes one or more columns after its number"),
        ("bucket(16, 'x')", "bucket takes one or more columns after its number"),
        ("truncate(4, id, ts)", "truncate takes one column after its number"),
        ("list('a')", "list takes one or more columns"),
        ("f(3)", "refers to no column"),
        ("f(g(id))", r"expected ',' or '\)', found '\('"),
        ("s.x(id)", "a function's name"),
        ("3(id)", "expected a function's name"),
        ("id.", "expected a column's name, found the end"),
        ("`id", "expected a quote that is closed, found '`'"),
        ("f(id, 'x)", "expected a quote that is closed"),
        ("``", "must not be empty"),
        (3, "an element of partitioning must be a string"),
    ],
)
def test_bad_partitioning(text: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_partitioning([text], NODES)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (None, None),
        (" EVEN ", "even"),
        ("HASH(16,id)", "hash(16, id)"),
        ("hash(4, id, ts)", "hash(4, id, ts)"),
        ("range(ts)", "range(ts)"),
    ],
)
def test_distribution(text: str | None, canonical: str | None) -> None:
    assert check_distribution(text, NODES) == canonical


@pytest.mark.parametrize("text", ["id", "bucket(16, id)", "hash(id)", "range(id) x", "even(3)", "hash(2, no)", "", 3])
def test_bad_distribution(text: Any) -> None:
    with pytest.raises(InvalidArgument):
        check_distribution(text, NODES)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ts", "ts asc nulls first"),
        ("ts ASC", "ts asc nulls first"),
        ("ts desc", "ts desc nulls last"),
        ("ts nulls last", "ts asc nulls last"),
        ("ts  Desc  NULLS  first", "ts desc nulls first"),
        ("desc desc", "desc desc nulls last"),
        ("Bucket(16, id) desc", "bucket(16, id) desc nulls last"),
        ("`my col`desc", "`my col` desc nulls last"),
    ],
)
def test_sort_orders(text: str, canonical: str) -> None:
    assert check_sort_orders([text], NODES) == [canonical]
    assert check_sort_orders([canonical], NODES) == [canonical]


@pytest.mark.parametrize("text", ["ts up", "ts desc asc", "ts nulls", "ts nulls first desc", "ts desc nulls", "no", ""])
def test_bad_sort_orders(text: str) -> None:
    with pytest.raises(InvalidArgument):
        check_sort_orders([text], NODES)


@pytest.mark.parametrize("texts", ["region", None, 3])
def test_texts_are_a_sequence(texts: Any) -> None:
    with pytest.raises(InvalidArgument, match="must be a sequence of strings"):
        check_partitioning(texts, NODES)


def test_the_same_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"partitioning has 'year\(ts\)' twice"):
        check_partitioning(["year(ts)", "YEAR(ts)"], NODES)


def test_indexes() -> None:
    indexes = (Index("pk", ["id", ("s", "x")], type="primary"), Index("u", ("my col", "`a.b`"), type="unique"))  # type: ignore[arg-type]
    stored = check_indexes(indexes, NODES)
    assert stored == [
        {"name": "pk", "columns": ["id", "s.x"], "type": "primary"},
        {"name": "u", "columns": ["my col", "`a.b`"], "type": "unique"},
    ]
    assert decode_indexes(stored) == indexes


@pytest.mark.parametrize(
    ("name", "columns", "kind", "message"),
    [
        ("", ("id",), "primary", "must not be empty"),
        ("i", "id", "primary", "a sequence of names, not 'id'"),
        ("i", (), "primary", "one or more columns"),
        ("i", ("id", "id"), "unique", "each once"),
        ("i", ("id",), "other", "'primary' or 'unique', not 'other'"),
    ],
)
def test_a_bad_index_is_refused(name: str, columns: Any, kind: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Index(name, columns, type=kind)


@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        ((Index("i", ("no",)),), "index 'i' refers to no,"),
        ((Index("i", ("id",)), Index("i", ("ts",), type="unique")), "two indexes are named 'i'"),
        ((Index("i", ("id",)), Index("j", ("ts",))), "'j' would be the second primary"),
        (("i",), "must be an Index, not 'i'"),
        (Index("i", ("id",)), "must be a sequence of Index"),
    ],
)
def test_bad_indexes_are_refused(indexes: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_indexes(indexes, NODES)


def test_references() -> None:
    assert references("f(a, s.`y z`, 3, 'a')") == (("a",), ("s", "y z"))
    assert references("even") == (("even",),)  # a partitioning by a column of this name; see layout_references
    assert references("ts desc nulls last") == (("ts",),)


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("ts desc nulls last", ("ts",), ("at",), "at desc nulls last"),
        ("bucket(16, id, ts)", ("id",), ("my id",), "bucket(16, `my id`, ts)"),
        ("s.x.y", ("s",), ("16",), "`16`.x.y"),
        ("s.x.y", ("s", "x"), ("s", "q.r"), "s.`q.r`.y"),
        ("s.x", ("x",), ("z",), "s.x"),
        ("even", ("even",), ("odd",), "odd"),
        ("ts(ts, 'ts')", ("ts",), ("at",), "ts(at, 'ts')"),
    ],
)
def test_renamed(text: str, old: tuple[str, ...], new: tuple[str, ...], after: str) -> None:
    assert renamed(text, old, new) == after


@given(strategies.names, strategies.names, st.sampled_from(["", "year", "hash_fn"]))
def test_every_name_can_be_referred_to_and_renamed(old: str, new: str, function: str) -> None:
    quoted = "`" + old.replace("`", "``") + "`"
    nodes = columns_doc([Column(old, "int")])["columns"]
    (text,) = check_sort_orders([f"{function}({quoted})" if function else quoted], nodes)
    assert check_sort_orders([text], nodes) == [text]
    assert references(text) == ((old,),)
    there = renamed(text, (old,), (new,))
    assert references(there) == ((new,),)
    assert renamed(there, (new,), (old,)) == text


def test_a_table_doc() -> None:
    fields = {
        "columns": [Column("id", "long"), Column("ts", "timestamp")],
        "partitioning": ["day(ts)"],
        "distribution": "hash(16, id)",
        "sort_orders": ["ts"],
        "indexes": [Index("pk", ("id",))],
        "location": "s3://b/t",
        "format": "PARQUET",
    }
    doc = TABLE.document(None, {}, fields)
    assert {key: value for key, value in doc.items() if key != "columns"} == {
        "comment": None,
        "properties": {},
        "last_column_id": 2,
        "partitioning": ["day(ts)"],
        "distribution": "hash(16, id)",
        "sort_orders": ["ts asc nulls first"],
        "indexes": [{"name": "pk", "columns": ["id"], "type": "primary"}],
        "location": "s3://b/t",
        "format": "parquet",
    }
    after = TABLE.replaced(doc, None, {}, {"columns": [Column("ts", "date"), Column("new", "int")]})
    assert [node["id"] for node in after["columns"]] == [2, 3]
    assert {**TABLE.document(None, {}, {}), "columns": after["columns"], "last_column_id": 3} == after


@pytest.mark.parametrize("fields", [{"location": " "}, {"format": ""}, {"location": 3}, {"format": b"orc"}])
def test_a_bad_location_or_format_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"a (location|format) must"):
        TABLE.document(None, {}, fields)
