"""Whatever changes a table went through: its schema in Arrow and in Spark says all of it. No session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metastore as ms
from metastore.columns.arrow import columns_from_arrow, columns_to_arrow
from metastore.columns.column import Column
from metastore.columns.types import parse
from metastore.errors import MetastoreError
from metastore.spark.file_columns import file_columns, file_layout
from metastore.spark.readable import Readable, first_names
from tests import strategies

pytest.importorskip("pyspark.sql.types")

from pyspark.sql.types import StructType

from metastore.spark.types import as_read, columns_from_spark, columns_to_spark

TABLE = "lake.c.s.t"
PARTS = ("element", "key", "value")  # Spark has no place for their comments


def places(columns: tuple[Column, ...], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for column in columns:
        yield (*above, column.name)
        yield from places(column.fields, (*above, column.name))


@st.composite
def changes_of(draw: st.DrawFn, columns: tuple[Column, ...]) -> Any:
    """One change of a table with these columns, nested fields included."""
    place = draw(st.sampled_from(sorted(places(columns))))
    beside = (*place[:-1], draw(strategies.names))
    comments = [] if place[-1] in PARTS else [st.builds(ms.SetColumnComment, st.just(place), strategies.comments)]
    return draw(
        st.one_of(
            st.builds(ms.AddColumn, st.just(beside), strategies.types, nullable=st.just(True)),
            st.builds(ms.RenameColumn, st.just(place), strategies.names),
            st.builds(ms.DropColumn, st.just(place)),
            st.builds(ms.RetypeColumn, st.just(place), strategies.types),
            st.builds(ms.MoveColumn, st.just(place), st.just(ms.FIRST)),
            st.builds(ms.SetColumnNullable, st.just(place), st.booleans()),
            *comments,
        )
    )


def changed(data: st.DataObject, columns: tuple[Column, ...], most: int = 6) -> tuple[Any, list[Any], list[Any]]:
    """Return a table after random changes, those that were possible, and its history."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        table = store.tables.create(TABLE, columns=columns, parents=True)
        done = []
        for _ in range(data.draw(st.integers(0, most))):
            if not table.columns:
                break
            change = data.draw(changes_of(table.columns))
            try:
                table = store.tables.alter(table, change)
            except MetastoreError:
                continue
            done.append(change)
        return table, done, list(store.tables.history(table))


@given(st.data(), strategies.columns_of(strategies.types, min_size=1))
def test_a_changed_table_comes_back_from_arrow_and_spark(data: st.DataObject, columns: tuple[Column, ...]) -> None:
    table, _, _ = changed(data, columns)
    assert columns_from_arrow(columns_to_arrow(table.columns)) == table.columns
    schema = columns_to_spark(table.columns)
    assert columns_from_spark(schema) == table.columns
    assert columns_from_spark(StructType.fromJson(schema.jsonValue())) == table.columns


@given(st.data(), strategies.columns_of(strategies.types, min_size=1))
def test_columns_are_read_from_where_they_were(data: st.DataObject, columns: tuple[Column, ...]) -> None:
    """The files stay as they were at the creation, and are read in their own columns, types and order."""
    table, done, history = changed(data, columns)
    seen = {"columns": {column.name: {"type": column.type} for column in columns}}
    readable = Readable(table, seen, first_names(history))
    found = file_columns(readable)
    assert [one.column for one in found] == list(table.columns)
    ids = {column.id: column.name for column in history[0].entity.columns}
    for one in found:
        kept = ids.get(one.column.id)
        assert (one.source is None) == (kept is None)
        if one.source is not None and not any(isinstance(change, ms.AddColumn) for change in done):
            assert one.source.name == kept
    layout = file_layout(readable, found)
    assert [column.name for column in layout] == [column.name for column in columns]
    assert len(columns_to_spark(layout)) == len(columns)


@given(strategies.types, st.booleans())
def test_a_type_as_read_is_one_that_files_can_have(text: str, times: bool) -> None:
    read = as_read(text, times=times)
    assert " not null" not in read or '"' in read or "`" in read
    assert as_read(read, times=times) == read
    assert parse(read)
    if times:
        (field,) = columns_to_spark([Column("a", read)]).fields
        assert columns_from_spark(StructType([field])) == (Column("a", read),)
