"""Columns are checked when they are made, keep their ids when they are stored again, and stay small."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest
from hypothesis import given

from metastore.columns.column import (
    Column,
    Node,
    check_columns,
    columns_doc,
    decode_columns,
    find,
    reconcile,
    with_fields,
)
from metastore.columns.types import MAX_DEPTH
from metastore.errors import InvalidArgument
from tests import strategies

Columns = tuple[Column, ...]


def ids(nodes: list[Node]) -> list[int]:
    return [i for node in nodes for i in (node["id"], *ids(node.get("fields", [])))]


@given(strategies.columns)
def test_what_is_stored_reads_back(columns: Columns) -> None:
    doc = json.loads(json.dumps(columns_doc(columns)))
    assert decode_columns(doc["columns"]) == columns
    assert ids(doc["columns"]) == list(range(1, doc["last_column_id"] + 1))


@given(strategies.columns, strategies.columns)
def test_a_replaced_column_keeps_its_id_by_name_and_no_id_comes_twice(old: Columns, new: Columns) -> None:
    before = columns_doc(old)
    after = reconcile(before, new)
    assert [c.name for c in decode_columns(after["columns"])] == [c.name for c in new]
    assert [c.type for c in decode_columns(after["columns"])] == [c.type for c in new]
    assert len(set(ids(after["columns"]))) == len(ids(after["columns"]))
    known = {node["name"]: node["id"] for node in before["columns"]}
    for node in after["columns"]:
        assert node["id"] == known.get(node["name"], node["id"])
        assert (node["id"] > before["last_column_id"]) == (node["name"] not in known)


@given(strategies.columns)
def test_storing_the_same_again_changes_nothing(columns: Columns) -> None:
    doc = columns_doc(columns)
    assert reconcile(doc, decode_columns(doc["columns"])) == doc
    assert reconcile(doc, columns) == doc


def test_a_comment_survives_only_a_column_without_one() -> None:
    old = columns_doc(
        [Column("s", "struct<a: int comment 'of a', b: int comment 'of b'>", comment="of s", default="1")]
    )
    after = reconcile(old, [Column("s", "struct<a: long comment 'new', b: int, c: int>")])
    (s,) = decode_columns(after["columns"])
    assert (s.comment, s.default) == ("of s", None)
    assert [(f.name, f.id, f.comment) for f in s.fields] == [("a", 2, "new"), ("b", 3, "of b"), ("c", 4, None)]
    assert after["last_column_id"] == 4


def test_a_part_of_another_constructor_gets_a_new_id() -> None:
    old = columns_doc([Column("a", "list<int>")])
    after = reconcile(old, [Column("a", "struct<element: int>")])
    assert ids(after["columns"]) == [1, 3]


def test_a_dropped_id_is_not_used_again() -> None:
    doc = columns_doc([Column("a", "int"), Column("b", "int")])
    doc = reconcile(doc, [Column("a", "int")])
    assert reconcile(doc, [Column("a", "int"), Column("b", "int")])["columns"][1]["id"] == 3


def test_the_stored_form() -> None:
    columns = [
        Column("id", "LONG", nullable=False, auto_increment=True),
        Column("m", "map<string,list<int not null>>", comment="c", default="{}"),
    ]
    element = {"id": 5, "name": "element", "type": "int", "nullable": False}
    assert columns_doc(columns) == {
        "columns": [
            {"id": 1, "name": "id", "type": "long", "nullable": False, "auto_increment": True},
            {
                "id": 2,
                "name": "m",
                "type": "map",
                "default": "{}",
                "comment": "c",
                "fields": [
                    {"id": 3, "name": "key", "type": "string", "nullable": False},
                    {"id": 4, "name": "value", "type": "list", "fields": [element]},
                ],
            },
        ],
        "last_column_id": 5,
    }


def test_ten_columns_are_less_than_a_kilobyte() -> None:
    columns = [Column(f"customer_column_{i}", "decimal(10,2)", nullable=i > 2, comment="an amount") for i in range(10)]
    assert len(json.dumps(columns_doc(columns))) < 1024


def test_the_parts_of_a_nested_type() -> None:
    column = Column("a", "struct<x: list<map<int,date>>, y: int not null>")
    x, y = column.fields
    assert (x.name, x.type, y.nullable) == ("x", "list<map<int,date>>", False)
    key, value = x.fields[0].fields
    assert (x.fields[0].name, key.name, value.name, key.nullable, value.type) == (
        "element",
        "key",
        "value",
        False,
        "date",
    )
    assert Column("b", "int").fields == ()


def test_an_id_is_shown_but_not_compared() -> None:
    (stored,) = decode_columns(columns_doc([Column("a", "int")])["columns"])
    assert (stored.id, Column("a", "int").id) == (1, None)
    assert stored == Column("a", "int")
    assert hash(stored) == hash(Column("a", "int"))
    assert pickle.loads(pickle.dumps(stored)).id == 1
    assert dataclasses.replace(stored, comment="c") == Column("a", "int", comment="c")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "must not be empty"),
        ({"name": 3}, "a name must be a string"),
        ({"type": "integer"}, "expected a type"),
        ({"type": ["int"]}, "a type is a string"),
        ({"nullable": None}, "nullable must be True or False"),
        ({"auto_increment": 1}, "auto_increment must be True or False"),
        ({"default": 0}, "a default must be a string"),
        ({"comment": b"x"}, "a comment must be a string"),
        ({"comment": "\udc00"}, "lone surrogate"),
    ],
)
def test_a_bad_column_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Column(**{"name": "a", "type": "int", **arguments})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([Column("a", "int"), Column("a", "date")], "two columns are named 'a'"),
        ([Column("e\u0301", "int"), Column("\u00e9", "int")], "two columns are named"),
        (["a int"], "a column must be a Column, not str"),
        ("a", "must be a sequence of Column, not str"),
        (Column("a", "int"), "must be a sequence of Column"),
        (None, "must be a sequence of Column"),
    ],
)
def test_bad_columns_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        columns_doc(columns)


def test_names_are_compared_exactly() -> None:
    assert len(check_columns([Column("a", "int"), Column("A", "int")])) == 2


def test_a_maps_key_is_never_nullable() -> None:
    column = with_fields(Column("m", "int", comment="c"), "map", [Column("key", "int"), Column("value", "int")])
    assert column == Column("m", "map<int,int>", comment="c")


def test_find() -> None:
    nodes = columns_doc([Column("a", "list<struct<b: int>>")])["columns"]
    assert (find(nodes, ("a", "element", "b")) or {})["id"] == 3
    assert find(nodes, ("a", "b")) is None
    assert find(nodes, ("a", "element", "b", "c")) is None


def test_the_deepest_column_is_stored() -> None:
    column = Column("a", "list<" * (MAX_DEPTH - 1) + "int" + ">" * (MAX_DEPTH - 1))
    assert decode_columns(json.loads(json.dumps(columns_doc([column])))["columns"]) == (column,)
