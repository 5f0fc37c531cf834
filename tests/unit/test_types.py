"""The type language reads what it writes, and says where a text goes wrong."""

from __future__ import annotations

import pytest
from hypothesis import given

from metastore.columns.types import MAX_DEPTH, Atomic, External, Field, Nested, depth, parse
from metastore.errors import InvalidArgument
from tests import strategies


@given(strategies.types)
def test_a_canonical_text_is_its_own_spelling(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("INT", "int"),
        ("  Decimal ( 10 , 2 )\n", "decimal(10,2)"),
        ("decimal(038,0)", "decimal(38,0)"),
        ("time", "time"),
        ("timestamp(6)", "timestamp(6)"),
        ("timestamp", "timestamp"),
        ("TIMESTAMPTZ ( 3 )", "timestamptz(3)"),
        ("varchar(20)", "varchar(20)"),
        ("fixed(2147483647)", "fixed(2147483647)"),
        ("List<Int NOT null>", "list<int not null>"),
        ("map< string , int >", "map<string,int>"),
        ("map<string not null,int not null comment 'x'>", "map<string,int not null>"),
        ("struct<a:int not null,b:string>", "struct<a: int not null, b: string>"),
        ("struct<>", "struct<>"),
        ("struct<`a`: int, `b c`: int, `d``e`: int>", "struct<a: int, `b c`: int, `d``e`: int>"),
        ("struct<not: int, struct: struct<null: date>>", "struct<not: int, struct: struct<null: date>>"),
        ("struct<größe: int, 1: int>", "struct<größe: int, 1: int>"),
        ('EXTERNAL ( "geo ""4326""" )', 'external("geo ""4326""")'),
    ],
)
def test_spelling(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


def test_what_a_parsed_type_is() -> None:
    assert parse("timestamp") == Atomic("timestamp", (6,))
    assert parse('external("x")') == External("x")
    element = Field("element", Atomic("int"), False)
    assert parse("list<int not null>") == Nested("list", (element,))
    field = Field("a", Atomic("decimal", (5, 2)), comment="it's")
    assert parse("struct<a: decimal(5,2) comment 'it''s'>") == Nested("struct", (field,))
    key, value = Field("key", Atomic("uuid"), False), Field("value", Atomic("date"))
    assert parse("map<uuid,date>") == Nested("map", (key, value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"character 1 expected a type \(boolean, .*external\), found the end"),
        ("integer", "character 1 expected a type .* found 'integer'"),
        ("int int", "character 5 expected the end of the type, found 'int'"),
        ("int not null", "character 5 expected the end"),
        ("decimal", r"character 8 expected '\(', found the end"),
        ("decimal(10)", r"character 11 expected ',', found '\)'"),
        ("decimal(0,0)", "character 9 expected a number from 1 to 38, found '0'"),
        ("decimal(39,1)", "character 9 expected a number from 1 to 38, found '39'"),
        ("decimal(3,4)", "character 11 expected a number from 0 to 3, found '4'"),
        ("decimal(3,-1)", "character 11 expected a number from 0 to 3"),
        ("time(10)", "expected a number from 0 to 9"),
        ("timestamp()", "expected a number from 0 to 9"),
        ("varchar", r"expected '\('"),
        ("varchar(0)", "expected a number from 1 to 2147483647, found '0'"),
        (f"char({'9' * 5000})", "expected a number from 1 to 2147483647"),
        ("varchar(٣)", "expected a number"),
        ("int(3)", "expected the end of the type"),
        ("list", "expected '<', found the end"),
        ("list<int", "character 9 expected '>', found the end"),
        ("list<int not>", "expected 'null' after 'not', found '>'"),
        ("map<int>", "expected ',', found '>'"),
        ("struct<a int>", "character 10 expected ':', found 'int'"),
        ("struct<a: int,>", "expected a field's name, found '>'"),
        ("struct<'a': int>", "expected a field's name"),
        ("struct<a: int, a: date>", "two fields named 'a'"),
        ("struct<``: int>", "must not be empty"),
        ("struct<a: int comment x>", "expected a text in single quotes"),
        ("external(x)", "expected a text in double quotes"),
        ('external("")', "must not be empty"),
        ("int $", r"character 5 expected the end of the type, found '\$'"),
        ("struct<`a: int>", "expected a field's name, found '`'"),
        ("list<" * MAX_DEPTH + "int" + ">" * MAX_DEPTH, "at most 100 types inside each other"),
        ("list<" * 100_000, "at most 100 types inside each other"),
        (None, "a type is a string .* not NoneType"),
        (["int"], "not list"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_a_bad_text_is_refused(text: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse(text)


def test_the_deepest_type_is_read_and_written() -> None:
    text = "list<" * (MAX_DEPTH - 1) + "int" + ">" * (MAX_DEPTH - 1)
    assert str(parse(text)) == text
    assert depth(parse(text)) == MAX_DEPTH
