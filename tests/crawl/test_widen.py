"""The type that holds two types."""

from __future__ import annotations

import itertools

import pytest

from metastore.crawl.read.widen import NULL_TYPE, known, widen, widest

PAIRS = [
    ("int", "long", "long"),
    ("byte", "short", "short"),
    ("int", "double", "double"),
    ("long", "float", "double"),
    ("float", "double", "double"),
    ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
    ("decimal(10,2)", "decimal(10,4)", "decimal(12,4)"),
    ("decimal(38,0)", "decimal(38,10)", None),
    ("int", "decimal(4,2)", "decimal(12,2)"),
    ("long", "decimal(20,0)", "decimal(20,0)"),
    ("decimal(4,2)", "double", None),
    ("date", "timestamp", "timestamp"),
    ("date", "timestamp(3)", "timestamp(3)"),
    ("timestamp(3)", "timestamp(9)", "timestamp(9)"),
    ("timestamp", "timestamptz", None),
    ("date", "timestamptz", None),
    ("varchar(3)", "varchar(5)", "varchar(5)"),
    ("varchar(3)", "char(5)", "string"),
    ("fixed(3)", "fixed(4)", "binary"),
    ("string", "binary", None),
    ("string", "int", None),
    ("boolean", "int", None),
    (NULL_TYPE, "struct<a: int>", "struct<a: int>"),
    ("list<int>", "list<long>", "list<long>"),
    ("list<int not null>", "list<int>", "list<int>"),
    ("list<int>", "list<string>", None),
    ("map<string,int>", "map<string,double>", "map<string,double>"),
    ("struct<a: int, b: string>", "struct<a: long, c: date>", "struct<a: long, b: string, c: date>"),
    ("struct<a: int not null>", "struct<b: int not null>", "struct<a: int, b: int>"),
    ("struct<a: int>", "list<int>", None),
    ('external("geometry")', 'external("geometry")', 'external("geometry")'),
    ('external("geometry")', "binary", None),
]


@pytest.mark.parametrize(("a", "b", "both"), PAIRS)
def test_widen(a: str, b: str, both: str | None) -> None:
    assert widen(a, b) == both
    if both is None or not both.startswith("struct"):
        assert widen(b, a) == both


def test_what_is_wide_enough_stays() -> None:
    for _, b, both in PAIRS:
        assert both is None or widen(both, b) == both


def test_widest_ends_in_double_or_string() -> None:
    assert widest("decimal(38,0)", "double") == "string"
    assert widest("long", "double") == "double"
    assert widest("long", "date") == "string"
    assert widest("list<long>", "list<string>") == "list<string>"
    assert widest("struct<a: long>", "long") == "string"
    kinds = ["long", "double", "date", "timestamp", "boolean", "decimal(38,0)", "string", NULL_TYPE]
    for a, b, c in itertools.product(kinds, repeat=3):
        if NULL_TYPE not in (a, b, c):
            assert widest(widest(a, b), c) in kinds


def test_nulls_become_strings() -> None:
    assert known(NULL_TYPE) == "string"
    assert known(f"list<struct<a: {NULL_TYPE}, b: int>>") == "list<struct<a: string, b: int>>"
