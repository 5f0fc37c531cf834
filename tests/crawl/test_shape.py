"""One table or several, with which columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metastore.columns.column import Column
from metastore.crawl.dataset.candidates import Candidate
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.dataset.shape import shape
from metastore.crawl.files.hive import NULL
from metastore.crawl.read.facts import ColumnStats, FileFacts, Unreadable
from metastore.crawl.read.widen import NULL_TYPE

FOLDER = Candidate(("l", "c", "s", "t"), ("l", "c", "s", "t"), "/lake/s/t", ())
KEYED = Candidate(("l", "c", "s", "t"), ("l", "c", "s", "t"), "/lake/s/t", (), partitioned=True)


def file(
    name: str, *, rows: int = 1, kind: str = "parquet", stats: Any = None, dialect: Any = (), **types: str
) -> FileFacts:
    return replace(_file(name, types), format=kind, rows=rows, dialect=dialect, stats=stats or {})


def _file(name: str, types: Mapping[str, str]) -> FileFacts:
    columns = tuple(
        Column(column, text.removesuffix("!"), nullable=not text.endswith("!")) for column, text in types.items()
    )
    return FileFacts(name, 10, "parquet", columns, 1)


def result(
    *files: FileFacts | Unreadable, of: Candidate = FOLDER, **stored: bool
) -> tuple[list[Dataset], dict[str, str]]:
    datasets, failures = shape(of, files, **stored)
    return datasets, {failure.path.removeprefix(of.location + "/"): failure.reason for failure in failures}


def types(dataset: Dataset) -> dict[str, str]:
    return {column.name: column.type for column in dataset.columns}


def names(datasets: list[Dataset]) -> list[str]:
    return [".".join(dataset.path[3:]) for dataset in datasets]


def test_files_that_fit_are_one_table_named_after_the_folder() -> None:
    ((table,), failures) = result(
        file("b.parquet", a="long", b="date", new="int"), file("a.parquet", a="int", b="date")
    )
    assert not failures
    assert table.path == ("l", "c", "s", "t")
    assert table.location == "/lake/s/t"
    assert types(table) == {"a": "long", "b": "date", "new": "int"}
    assert (table.files, table.rows, table.bytes) == (2, 2, 20)


def test_nullable_if_it_is_anywhere_or_missing_somewhere() -> None:
    ((table,), _) = result(
        file("1.parquet", a="int!", b="int!", c="int!"), file("2.parquet", a="int!", b="int", c="int!", d="int!")
    )
    assert {column.name: column.nullable for column in table.columns} == {"a": False, "b": True, "c": False, "d": True}


def test_types_that_do_not_go_together_make_tables_of_their_own() -> None:
    datasets, failures = result(file("a.parquet", x="int"), file("b.parquet", x="string"))
    assert names(datasets) == ["t.a", "t.b"]
    assert [dataset.location for dataset in datasets] == ["/lake/s/t/a.parquet", "/lake/s/t/b.parquet"]
    assert not failures


def test_formats_and_dialects_that_differ_make_tables_of_their_own() -> None:
    assert len(result(file("a.parquet", x="long"), file("b.csv", kind="csv", x="long"))[0]) == 2
    tabs = file("b.csv", kind="csv", x="long", dialect=(("delimiter", "\t"),))
    assert len(result(file("a.csv", kind="csv", x="long"), tabs)[0]) == 2


def test_files_that_share_a_name_only_are_no_table() -> None:
    carriers = file("a.csv", kind="csv", code="string", title="string")
    airports = file("b.csv", kind="csv", faa="string", title="string", lat="double")
    assert names(result(carriers, airports)[0]) == ["t.a", "t.b"]


def test_columns_that_come_and_go_are_still_one_table() -> None:
    old = {f"c{n}": "int" for n in range(10)}
    new = {f"c{n}": "int" for n in range(3, 12)}
    ((table,), _) = result(_file("1.parquet", old), _file("2.parquet", new))
    assert list(types(table)) == [f"c{n}" for n in range(12)]


def test_text_types_come_together_as_string_where_the_columns_are_the_same() -> None:
    ((table,), _) = result(
        file("1.csv", kind="csv", a="long", b="long"), file("2.csv", kind="csv", a="long", b="string")
    )
    assert types(table) == {"a": "long", "b": "string"}
    datasets, _ = result(file("1.csv", kind="csv", a="long", b="long"), file("2.csv", kind="csv", a="string"))
    assert len(datasets) == 2


def test_nulls_become_strings_in_text_and_stay_in_parquet() -> None:
    ((table,), _) = result(
        file("1.csv", kind="csv", a=NULL_TYPE, b=NULL_TYPE), file("2.csv", kind="csv", a="long", b=NULL_TYPE)
    )
    assert types(table) == {"a": "long", "b": "string"}
    ((table,), _) = result(file("1.parquet", a=NULL_TYPE))
    assert types(table) == {"a": NULL_TYPE}


def test_names_of_files_that_collide_keep_their_ending() -> None:
    datasets, _ = result(
        file("a.csv", kind="csv", x="long"), file("a.json", kind="json", x="long"), file("b.tsv", kind="csv", y="date")
    )
    assert names(datasets) == ["t.a.csv", "t.a.json", "t.b"]
    assert [dataset.path[-1] for dataset in datasets] == ["a.csv", "a.json", "b"]
    neighbour = Candidate(FOLDER.table, FOLDER.schema, FOLDER.location, (), neighbours=frozenset({"b"}))
    datasets, _ = result(file("a.csv", kind="csv", x="long"), file("b.csv", kind="csv", y="date"), of=neighbour)
    assert [dataset.path[-1] for dataset in datasets] == ["a", "b.csv"]


def test_a_file_that_no_table_can_be_named_after() -> None:
    datasets, failures = result(file("a\x07.parquet", x="int"), file("b.parquet", y="date"))
    assert [dataset.path[-1] for dataset in datasets] == ["b"]
    assert "not allowed" in failures["a\x07.parquet"]


def test_unreadable_files_do_not_change_what_the_others_are() -> None:
    ((table,), failures) = result(
        Unreadable("0.csv", "is empty"), file("1.parquet", a="int"), file("2.parquet", a="int")
    )
    assert table.files == 2
    assert failures == {"0.csv": "is empty"}
    assert result(Unreadable("0.csv", "is empty")) == ([], {"0.csv": "is empty"})


def test_what_is_one_table_stays_one() -> None:
    wrong, other = file("3.parquet", x="string", y="int"), file("4.parquet", p="int", q="int", r="int")
    files = (file("1.parquet", x="int", y="int"), file("2.parquet", x="int", y="int"), wrong, other)
    assert len(result(*files)[0]) == 4
    datasets, failures = result(*files, is_one=True)
    assert names(datasets) == ["t", "t.4"]
    assert list(failures) == ["3.parquet"]
    assert "'x' as string" in failures["3.parquet"]
    assert types(datasets[0]) == {"x": "int", "y": "int"}


def test_what_is_many_tables_stays_many() -> None:
    files = (file("1.parquet", x="int"), file("2.parquet", x="int"))
    assert names(result(*files)[0]) == ["t"]
    assert names(result(*files, is_many=True)[0]) == ["t.1", "t.2"]


def test_partitions() -> None:
    ((table,), failures) = result(
        file("m=1/d=a%2Fb/1.parquet", rows=3, x="int", m="string"),
        file("m=1/d=a%2Fb/2.parquet", rows=4, x="int"),
        file(f"m=2/d={NULL}/1.parquet", rows=5, x="long"),
        of=KEYED,
    )
    assert not failures
    assert types(table) == {"x": "long", "m": "int", "d": "string"}
    assert table.keys == ("m", "d")
    parts = {name: (dict(p.values), p.rows, p.bytes, p.files) for name, p in table.parts.items()}
    assert parts == {
        "m=1/d=a%2Fb": ({"m": "1", "d": "a/b"}, 7, 20, 2),
        f"m=2/d={NULL}": ({"m": "2", "d": NULL}, 5, 10, 1),
    }
    assert table.stats["m"] == ColumnStats(0, 1, 2)
    assert table.stats["d"] == ColumnStats(5, "a/b", "a/b")


def test_a_partitioned_folder_is_one_table_whatever_some_files_hold() -> None:
    months = {f"m={n}/1.parquet": {"x": "int", "y": "date"} for n in range(1, 6)}
    months["m=2/1.parquet"]["x"] = "string"
    files = [_file(name, kinds) for name, kinds in months.items()]
    files += [
        file("m=7/1.csv", kind="csv", x="long"),
        file("m=8/k=1/1.parquet", x="int"),
        file("m=9/1.parquet", z="int"),
    ]
    ((table,), failures) = result(*files, of=KEYED)
    assert list(table.parts) == ["m=1", "m=3", "m=4", "m=5", "m=9"]
    assert types(table) == {"x": "int", "y": "date", "z": "int", "m": "int"}
    assert failures == {
        "m=2/1.parquet": "has the column 'x' as string, other files of its table have it as int",
        "m=7/1.csv": "is csv, the other files of its table are parquet",
        "m=8/k=1/1.parquet": "has the partition columns (m, k), other files of its table have (m)",
    }
    assert table.doubtful == frozenset({"m=2", "m=7", "m=8/k=1"})


def test_the_type_that_more_files_have_is_right() -> None:
    files = [
        file("m=1/1.parquet", x="int"),
        file("m=2/1.parquet", x="string"),
        file("m=3/1.parquet", x="string", y="int"),
    ]
    ((table,), failures) = result(*files, of=KEYED)
    assert types(table)["x"] == "string"
    assert list(failures) == ["m=1/1.parquet"]


def test_keys_that_cannot_be_columns() -> None:
    datasets, failures = shape(KEYED, [file("m=1/m=2/1.parquet", x="int")])
    assert not datasets
    assert failures[0].reason == "has a partition column twice: m, m"
    datasets, failures = shape(KEYED, [file("%01=1/1.parquet", x="int")])
    assert "cannot be stored" in failures[0].reason
    datasets, failures = shape(KEYED, [file(f"m={'x' * 254}/1.parquet", x="int"), file("m=1/1.parquet", x="int")])
    assert "partition that cannot be stored" in failures[0].reason
    assert list(datasets[0].parts) == ["m=1"]


def test_statistics_add_up() -> None:
    one = file("1.parquet", rows=3, stats={"a": ColumnStats(1, 5, 9)}, a="int")
    two = file("2.parquet", rows=4, stats={"a": ColumnStats(0, 1, 2), "b": ColumnStats(0, 7, 7)}, a="int", b="int")
    ((table,), _) = result(one, two)
    assert table.stats == {"a": ColumnStats(1, 1, 9), "b": ColumnStats(3, 7, 7)}


def test_hints_that_differ_are_left_out() -> None:
    def hinted(name: str, hints: Mapping[str, str]) -> FileFacts:
        return FileFacts(name, 1, "csv", (Column("a", "long"),), 1, (), tuple(hints.items()))

    ((table,), _) = result(hinted("1.csv", {"nullValue": "NA"}), hinted("2.csv.gz", {"compression": "gzip"}))
    assert table.options == {"nullValue": "NA", "compression": "gzip"}
    ((table,), _) = result(hinted("1.csv", {"nullValue": "NA"}), hinted("2.csv", {"nullValue": "NULL"}))
    assert table.options == {}


def test_a_table_that_another_folder_has() -> None:
    taken = Candidate(FOLDER.table, FOLDER.schema, "/other/s/t", (), rival="/lake/s/t")
    datasets, failures = shape(taken, [file("1.parquet", a="int")])
    assert not datasets
    assert failures[0].reason == "would be l.c.s.t, which is the table of /lake/s/t already"
    datasets, failures = shape(taken, [file("1.parquet", a="int"), file("2.parquet", b="int")])
    assert (names(datasets), failures) == (["t.1", "t.2"], [])
