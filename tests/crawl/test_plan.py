"""What is written: what is new in the files, and nothing that people edited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from metastore.columns.column import Column
from metastore.crawl.dataset.dataset import Dataset, Part
from metastore.crawl.dataset.figures import figures
from metastore.crawl.read.facts import ColumnStats
from metastore.crawl.write.plan import (
    LocationTaken,
    StoredPart,
    StoredTable,
    TablePlan,
    TypeChanged,
    partitioning_of,
    plan_table,
    properties_of,
)
from metastore.kinds.change import RemoveProperty, SetProperty
from metastore.kinds.table.changes import FIRST, AddColumn, RetypeColumn, SetColumnNullable, SetFormat, SetLocation


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind.removesuffix("!"), nullable=not kind.endswith("!")) for name, kind in types.items())


def dataset(*, keys: tuple[str, ...] = (), **types: str) -> Dataset:
    return Dataset(("l", "c", "s", "t"), "/lake/t", "parquet", columns(**types), keys)


def stored(found: Dataset, **changes: Any) -> StoredTable:
    """Return the table as the crawler made it of ``found``."""
    made = plan_table(found, None)
    table = StoredTable(
        columns=found.columns,
        partitioning=partitioning_of(found),
        location=f"file://{found.location}",
        format=found.format,
        properties=properties_of(found),
        parts=made.parts,
        seen=made.seen,
    )
    return replace(table, **changes)


FOUND = dataset(a="int", b="string")


def test_a_new_table() -> None:
    found = replace(
        dataset(keys=("m",), a="int", m="int"),
        parts={"m=1": Part({"m": "1"}, 5, 60, 2)},
        stats={"a": ColumnStats(1, 3, 9)},
        rows=5,
        bytes=60,
        files=2,
    )
    made = plan_table(found, None)
    assert made.create
    assert made.parts == {"m=1": StoredPart({"m": "1"}, {"numFiles": "2", "numRows": "5", "totalSize": "60"})}
    assert made.seen == {
        "rows": 5,
        "bytes": 60,
        "files": 2,
        "format": "parquet",
        "options": {},
        "columns": {
            "a": {"type": "int", "nullable": True, "nulls": 1, "min": "3", "max": "9"},
            "m": {"type": "int", "nullable": True},
        },
    }


def test_nothing_changed() -> None:
    assert plan_table(FOUND, stored(FOUND)) == TablePlan()
    assert plan_table(FOUND, stored(FOUND)).is_empty
    assert not plan_table(FOUND, None).is_empty


def test_new_columns_go_before_the_partition_columns() -> None:
    before = dataset(keys=("m",), a="int", m="int")
    after = dataset(keys=("m",), a="int", x="date", y="date!", m="int")
    found = plan_table(after, stored(before), gone)
    assert found.changes == (
        AddColumn(("x",), "date", after="a"),
        AddColumn(("y",), "date", nullable=False, after="x"),
    )
    only_keys = dataset(keys=("m",), m="int")
    assert plan_table(after, stored(only_keys)).changes[0] == AddColumn(("a",), "int", after=FIRST)
    assert plan_table(dataset(a="int", b="string", x="int"), stored(FOUND)).changes == (AddColumn(("x",), "int"),)


def test_types_are_widened_and_never_narrowed() -> None:
    wider = dataset(a="long", b="string")
    widened = plan_table(wider, stored(FOUND), on_type_change="widen")
    assert (widened.changes, widened.diff) == ((RetypeColumn(("a",), "long"),), ("~ a int -> long",))
    for policy in ("widen", "report", "fail"):
        narrower = plan_table(FOUND, stored(wider), on_type_change=policy)
        assert (narrower.changes, narrower.notes, narrower.open_types) == ((), (), False)
    nested = dataset(a="struct<x: int, y: int>", b="string")
    grown = dataset(a="struct<x: long, z: int>", b="string")
    found = plan_table(grown, stored(nested), on_type_change="widen")
    assert found.changes == (RetypeColumn(("a",), "struct<x: long, y: int, z: int>"),)


def test_a_type_that_changed_is_reported_until_it_may_be_widened() -> None:
    wider = dataset(a="long", b="string")
    reported = plan_table(wider, stored(FOUND))
    assert (reported.changes, reported.open_types) == ((), True)
    assert reported.notes == ("the column 'a' is long in the files now; int is kept",)
    assert reported.diff == ("! a long in the files (int is kept)",)
    again = plan_table(wider, stored(FOUND, seen=reported.seen))
    assert (again.is_empty, again.notes, again.diff, again.open_types) == (True, reported.notes, (), True)
    widened = plan_table(wider, stored(FOUND, seen=reported.seen), on_type_change="widen")
    assert widened.changes == (RetypeColumn(("a",), "long"),)
    retyped = plan_table(wider, stored(FOUND, seen=reported.seen, columns=columns(a="date", b="string")))
    assert (retyped.changes, retyped.notes, retyped.open_types) == ((), (), False)  # people have decided


def test_a_type_that_changed_can_fail_the_table() -> None:
    for other in ("long", "date"):
        with pytest.raises(TypeChanged, match=f"the column 'a' is {other} in the files now, int in the catalog"):
            plan_table(dataset(a=other, b="string"), stored(FOUND), on_type_change="fail")
    assert plan_table(FOUND, stored(FOUND, columns=columns(a="date", b="string")), on_type_change="fail").is_empty


def test_a_signature_alone_is_no_change_of_the_table() -> None:
    touched = plan_table(replace(FOUND, signature="2"), stored(replace(FOUND, signature="1")))
    assert touched.seen is not None
    assert (touched.seen["signature"], touched.is_empty, touched.alters) == ("2", False, False)
    grown = plan_table(replace(FOUND, signature="2", rows=7), stored(replace(FOUND, signature="1")))
    assert grown.alters


def test_files_that_are_back_take_the_mark_away() -> None:
    found = plan_table(FOUND, stored(FOUND, properties={"crawl.missing": "2026-01-01", "mine": "x"}))
    assert found.changes == (RemoveProperty("crawl.missing"),)
    assert found.diff == ("- property crawl.missing",)


def test_the_diff_of_a_table() -> None:
    before = replace(
        dataset(keys=("m",), a="int!", b="string", m="int"),
        options={"header": "true"},
        parts={"m=1": Part({"m": "1"}, 5, 60, 2), "m=2": Part({"m": "2"}, 5, 60, 2)},
    )
    after = replace(
        dataset(keys=("m",), a="long", c="date!", m="int"),
        options={"delimiter": ";"},
        parts={"m=2": Part({"m": "2"}, 6, 60, 2), "m=3": Part({"m": "3"}, 5, 60, 2)},
    )
    assert plan_table(after, stored(before), lambda _: True, "widen").diff == (
        "~ a int -> long",
        "~ a not null -> nullable",
        "+ c date not null",
        "+ property crawl.delimiter = ;",
        "- property crawl.header",
        "- b string (in no file any more; kept)",
        "+ partition m=3",
        "~ partition m=2",
        "- partition m=1",
    )
    assert plan_table(replace(before, parts={}), None).diff == ("+ a int not null", "+ b string", "+ m int")
    many = {f"m={n}": Part({"m": str(n)}, 1, 1, 1) for n in range(30)}
    assert plan_table(replace(before, parts=many), None).diff[-1] == "+ 10 more partitions"


def test_a_type_that_cannot_be_widened_is_kept_and_noted_each_time() -> None:
    other = dataset(a="date", b="string")
    first = plan_table(other, stored(FOUND))
    assert (first.changes, first.notes) == ((), ("the column 'a' is date in the files now; int is kept",))
    assert first.seen is not None
    again = plan_table(other, stored(FOUND, seen=first.seen))
    assert again.is_empty
    assert again.notes == first.notes


def test_nullable() -> None:
    strict = dataset(a="int!", b="string")
    assert plan_table(FOUND, stored(strict)).changes == (SetColumnNullable(("a",), True),)
    assert plan_table(strict, stored(FOUND)).changes == ()


def test_columns_that_vanish_are_kept_and_noted_each_time() -> None:
    fewer = dataset(a="int")
    first = plan_table(fewer, stored(FOUND))
    assert (first.changes, first.notes) == ((), ("the column 'b' is in no file any more; it is kept",))
    assert first.seen is not None
    again = plan_table(fewer, stored(FOUND, seen=first.seen))
    assert again.is_empty
    assert again.notes == first.notes
    back = plan_table(FOUND, stored(FOUND, seen=first.seen))
    assert (back.changes, back.notes, back.seen) == ((), (), figures(FOUND))


def test_what_people_edited_stays() -> None:
    renamed = stored(FOUND, columns=columns(a="int", c="string"))
    assert plan_table(FOUND, renamed).is_empty
    dropped = stored(FOUND, columns=columns(a="int"))
    assert plan_table(FOUND, dropped).is_empty
    added = stored(FOUND, columns=columns(a="int", b="string", mine="date"))
    assert plan_table(FOUND, added) == TablePlan()
    retyped = stored(FOUND, columns=columns(a="long", b="varchar(10)"))
    assert plan_table(FOUND, retyped) == TablePlan()
    strict = stored(FOUND, columns=columns(a="int!", b="string"))
    assert plan_table(FOUND, strict).is_empty
    described = stored(
        FOUND, columns=(Column("a", "int", comment="mine"), Column("b", "string")), properties={"x": "y"}
    )
    assert plan_table(FOUND, described).is_empty


def test_edits_and_changed_files_merge() -> None:
    table = stored(FOUND, columns=columns(a="decimal(12,0)", c="string"))
    changed = plan_table(dataset(a="long", b="string", d="int"), table, on_type_change="widen")
    assert changed.changes == (RetypeColumn(("a",), "decimal(19,0)"), AddColumn(("d",), "int"))


def test_options_of_readers() -> None:
    found = replace(FOUND, options={"delimiter": ";", "header": "true"})
    assert properties_of(found) == {"crawl.delimiter": ";", "crawl.header": "true"}
    table = stored(found)
    now = replace(FOUND, options={"delimiter": ",", "nullValue": "NA"})
    assert plan_table(now, table).changes == (
        SetProperty("crawl.delimiter", ","),
        RemoveProperty("crawl.header"),
        SetProperty("crawl.nullValue", "NA"),
    )
    edited = replace(table, properties={"crawl.delimiter": "|", "crawl.header": "true", "mine": "1"})
    assert plan_table(found, edited).is_empty
    assert plan_table(replace(found, options={"delimiter": ","}), edited).changes == (RemoveProperty("crawl.header"),)


def test_format() -> None:
    csv = replace(FOUND, format="csv")
    assert plan_table(csv, stored(FOUND)).changes == (SetFormat("csv"),)
    assert plan_table(FOUND, stored(FOUND, format="mine")).is_empty


def test_location() -> None:
    with pytest.raises(LocationTaken, match=r"l\.c\.s\.t, which is the table of file:///else"):
        plan_table(FOUND, stored(FOUND, location="file:///else"))
    moved = plan_table(FOUND, stored(FOUND, location="file:///else"), lambda location: location == "file:///else")
    assert moved.changes == (SetLocation("file:///lake/t"),)


def test_a_table_that_people_made() -> None:
    mine = StoredTable(columns=columns(a="long"), properties={"x": "y"})
    found = plan_table(FOUND, mine)
    assert found.changes == (SetLocation("file:///lake/t"), SetFormat("parquet"), AddColumn(("b",), "string"))
    assert found.seen == figures(FOUND)
    with pytest.raises(LocationTaken):
        plan_table(FOUND, replace(mine, location="s3://other"), lambda _: True)


def partitioned(**rows: int) -> Dataset:
    parts = {name.replace("_", "="): Part({"m": name[2:]}, count, 10, 1) for name, count in rows.items()}
    return replace(dataset(keys=("m",), a="int", m="int"), parts=parts)


def gone(_location: str) -> bool:
    return True


def test_partitions_come_change_and_go() -> None:
    before, after = partitioned(m_1=1, m_2=2, m_3=3), partitioned(m_2=2, m_3=30, m_4=4)
    found = plan_table(after, stored(before), gone)
    assert set(found.parts) == {"m=3", "m=4"}
    assert found.replaced == {"m=3"}
    assert found.removed == ("m=1",)
    assert found.changes == ()


def test_properties_of_partitions_are_kept() -> None:
    before, after = partitioned(m_1=1), partitioned(m_1=5)
    table = stored(before)
    old = table.parts["m=1"]
    table = replace(table, parts={"m=1": replace(old, properties={**old.properties, "mine": "x"})})
    assert plan_table(before, table).is_empty
    assert plan_table(after, table).parts["m=1"].properties == {
        "mine": "x",
        "numFiles": "1",
        "numRows": "5",
        "totalSize": "10",
    }


def test_partitions_of_people_stay() -> None:
    found = partitioned(m_1=1)
    table = stored(found)
    mine = StoredPart({"m": "9"}, {"why": "because"})
    assert plan_table(found, replace(table, parts={**table.parts, "m=9": mine})).is_empty


def test_partitions_that_were_not_listed_but_are_there_stay() -> None:
    before, after = partitioned(m_1=1, m_2=2, m_3=3), partitioned(m_3=3)
    found = plan_table(after, stored(before), lambda location: location.endswith("/m=2"))
    assert (found.removed, found.unlisted) == (("m=2",), True)
    assert found.notes == ("the partition m=1 was not listed, but it is there; it stays",)


def test_partitions_that_could_not_be_looked_at_stay() -> None:
    before, after = partitioned(m_1=1, m_2=2, m_3=3), partitioned(m_3=3)
    assert plan_table(replace(after, doubtful=frozenset({"m=1"})), stored(before), gone).removed == ("m=2",)
    assert plan_table(replace(after, doubtful=None), stored(before), gone).removed == ()


def test_another_partitioning_is_left_as_it_is() -> None:
    found = partitioned(m_1=1)
    table = stored(found, partitioning=("renamed",), columns=columns(a="int", renamed="int"), parts={})
    planned = plan_table(found, table)
    assert planned.is_empty
    assert planned.notes == (
        "the files are partitioned by m, the table by renamed; its partitions are left as they are",
    )


def test_names_of_partition_columns_are_spelled_as_the_catalog_does() -> None:
    found = Dataset(
        ("l", "c", "s", "t"), "/t", "csv", columns(**{"a b": "int", "x.y": "int", "`": "int"}), ("a b", "x.y", "`")
    )
    assert partitioning_of(found) == ("`a b`", "`x.y`", "````")


def test_a_statistic_that_would_be_too_great_leaves_bounds_out() -> None:
    wide = replace(FOUND, columns=tuple(Column(f"c{n}", "string") for n in range(2000)))
    wide = replace(wide, stats={c.name: ColumnStats(0, "x" * 250, "y" * 250) for c in wide.columns})
    seen = plan_table(wide, None).seen
    assert seen is not None
    assert seen["columns"]["c7"] == {"type": "string", "nullable": True}


def test_another_kind_of_place_is_not_asked() -> None:
    asked: list[str] = []
    for there in ("s3://bucket/t", "file:///elsewhere"):
        with pytest.raises(LocationTaken):
            plan_table(FOUND, stored(FOUND, location=there), lambda location: bool(asked.append(location)))  # type: ignore[func-returns-value]
    assert asked == ["file:///elsewhere"]
