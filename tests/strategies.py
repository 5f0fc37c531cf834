"""Hypothesis strategies: types, columns, and table documents."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from metastore.columns.column import Column
from metastore.columns.types import spell
from metastore.errors import InvalidArgument
from metastore.kinds.table.kind import TABLE
from metastore.names import clean_name

BARE = (
    "boolean",
    "byte",
    "short",
    "int",
    "long",
    "float",
    "double",
    "date",
    "interval_year",
    "interval_day",
    "string",
    "binary",
    "uuid",
    "time",
    "timestamp",
    "timestamptz",
)


def _is_name(text: str) -> bool:
    try:
        return clean_name(text) == text
    except InvalidArgument:
        return False


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
names = (st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True) | texts).filter(_is_name)
comments = st.none() | texts


@st.composite
def _decimals(draw: st.DrawFn) -> str:
    precision = draw(st.integers(1, 38))
    return f"decimal({precision},{draw(st.integers(0, precision))})"


def _numbered(words: tuple[str, ...], low: int, high: int) -> st.SearchStrategy[str]:
    return st.builds("{}({})".format, st.sampled_from(words), st.integers(low, high))


externals = (st.sampled_from(("null", "duration[us]", "variant")) | texts.filter(bool)).map(
    lambda text: 'external("' + text.replace('"', '""') + '")'
)
atomic_types = st.one_of(
    st.sampled_from(BARE),
    _decimals(),
    _numbered(("time", "timestamp", "timestamptz"), 0, 9).map(lambda text: text.replace("(6)", "")),
    _numbered(("varchar", "char", "fixed"), 1, 2**31 - 1),
    externals,
)


def _nested(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.builds(Column, names, parts, nullable=st.booleans())
    lists = st.builds(Column, st.just("element"), parts, nullable=st.booleans()).map(lambda f: spell("list", [f]))
    maps = st.tuples(st.builds(Column, st.just("key"), parts), fields).map(lambda pair: spell("map", pair))
    structs = st.lists(fields, max_size=4, unique_by=lambda f: f.name).map(lambda fs: spell("struct", fs))
    return lists | maps | structs


types: st.SearchStrategy[str] = st.recursive(atomic_types, _nested, max_leaves=6)


def columns_of(kinds: st.SearchStrategy[str], *, max_size: int = 5, min_size: int = 0) -> Any:
    """Sequences of columns, of these types, without ids."""
    one = st.builds(
        Column,
        names,
        kinds,
        nullable=st.booleans(),
        default=comments,
        comment=comments,
        auto_increment=st.booleans(),
    )
    many = st.lists(one, max_size=max_size, min_size=min_size, unique_by=lambda c: c.name)
    return many.map(tuple)


columns = columns_of(types)


def _whole_doc(columns: tuple[Column, ...]) -> dict[str, Any]:
    return TABLE.document(None, {}, {"columns": columns})


table_docs: st.SearchStrategy[dict[str, Any]] = columns_of(types, min_size=2).map(_whole_doc)
