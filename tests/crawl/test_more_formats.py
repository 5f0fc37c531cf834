"""ORC, Avro and packed text: what the libraries that write them say is found; what cannot be read has a reason."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import lzma
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pytest

from metastore.columns.arrow import columns_from_arrow
from metastore.columns.column import Column
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.infer import infer_file
from tests.crawl.conftest import Crawler, Lake

pytestmark = pytest.mark.one_in(3)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
TEXT = b"a,b\n1,x\n2,y\n"


def infer(path: Path) -> FileFacts | Unreadable:
    return infer_file(str(path.parent), path.name, path.stat().st_size)


def facts(path: Path) -> FileFacts:
    found = infer(path)
    assert isinstance(found, FileFacts), found
    return found


def reason(path: Path) -> str:
    found = infer(path)
    assert isinstance(found, Unreadable), found
    assert "\n" not in found.reason
    return found.reason


def types(found: FileFacts) -> dict[str, str]:
    return {column.name: column.type for column in found.columns}


# ORC

ORC = pa.table(
    {
        "i": pa.array([1, 2, None], pa.int32()),
        "b": pa.array([True, None, False]),
        "d": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)),
        "t": pa.array([1_704_067_200 * 10**9, None, None], pa.timestamp("ns")),
        "day": pa.array([dt.date(2024, 1, 1), None, None]),
        "s": pa.array(["x", "y", None]),
        "l": pa.array([[1], None, []], pa.list_(pa.int64())),
        "m": pa.array([[("a", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
        "st": pa.array([{"x": 1, "y": "z"}, None, None]),
        "bin": pa.array([b"x", None, b""]),
    }
)


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "zstd", "lz4"])
def test_orc(lake: Lake, compression: str) -> None:
    path = lake.text("a.orc", b"")
    pyarrow.orc.write_table(ORC, path, compression=compression)
    found = facts(path)
    assert (found.format, found.rows, found.dialect, found.hints) == ("orc", 3, (), ())
    assert found.columns == columns_from_arrow(pyarrow.orc.ORCFile(path).schema)
    assert types(found) == {
        "i": "int",
        "b": "boolean",
        "d": "decimal(9,2)",
        "t": "timestamp(9)",
        "day": "date",
        "s": "string",
        "l": "list<long>",
        "m": "map<string,double>",
        "st": "struct<x: long, y: string>",
        "bin": "binary",
    }


def test_orc_without_rows_or_columns(lake: Lake) -> None:
    path = lake.text("a.orc", b"")
    pyarrow.orc.write_table(ORC.slice(0, 0), path)
    assert (facts(path).rows, len(facts(path).columns)) == (0, 10)


def orc_of(footer: bytes, block: int) -> bytes:
    """Return the bytes of an ORC file with this packed footer; the postscript says how long it is."""
    postscript = (
        b"\x08" + varint(len(footer)) + b"\x10\x01\x18" + varint(block) + b"\x22\x02\x00\x0c\x82\xf4\x03\x03ORC"
    )
    return b"ORC" + footer + postscript + bytes([len(postscript)])


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def reason_in_little_memory(path: Path) -> str:
    """Return the reason that a process of its own gives, which may have one gigabyte more than it begins with."""
    program = (
        "import resource, sys; from pathlib import Path; from tests.crawl.test_more_formats import reason\n"
        "begins = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (begins + (1 << 30),) * 2); print(reason(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"the process ended with {done.returncode}: {done.stderr[-500:]}"
    return done.stdout.rstrip("\n")


def test_an_orc_footer_that_unpacks_to_much(lake: Lake) -> None:
    """The library would unpack all of it before it says anything."""
    block = 1 << 22
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(b"\x1a\x00" * (block // 2)) + packer.flush()
    chunk = (len(packed) << 1).to_bytes(3, "little") + packed
    path = lake.text("bomb.orc", orc_of(chunk * 100, block))
    assert path.stat().st_size < 1 << 20
    found = reason_in_little_memory(path)
    assert found.startswith("has a footer that may unpack to 419,430,400 bytes, as a decompression bomb does")
    assert "damaged" in reason(lake.text("small.orc", orc_of(chunk, block)))
    great = orc_of(b"", block).replace(b"\x08\x00", b"\x08" + varint(1 << 27), 1)
    great = great[:-1] + bytes([great[-1] + 3])
    assert reason(lake.text("great.orc", great)).startswith("has a footer of 134,217,728 bytes")


def test_what_is_no_orc(lake: Lake) -> None:
    buffer = io.BytesIO()
    pyarrow.orc.write_table(ORC, buffer)
    content = buffer.getvalue()
    assert reason(lake.text("text.orc", TEXT)) == "is not ORC, although its name says so"
    for name, bad in (("cut.orc", content[:-20]), ("half.orc", content[: len(content) // 2]), ("head.orc", b"ORC")):
        assert "damaged" in reason(lake.text(name, bad)), name
    for at in range(0, len(content), 7):  # whatever is wrong with it, there is an answer
        infer(lake.text("flipped.orc", content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]))


# Avro


def avro(lake: Lake, schema: Any, rows: Iterable[Any] = (), **options: Any) -> Path:
    """Write an Avro file; a list is the fields of a record."""
    if isinstance(schema, list):
        schema = {"type": "record", "name": "row", "namespace": "n", "fields": schema}
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, rows, **options)
    return lake.text("a.avro", buffer.getvalue())


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("rows", [0, 1, 10_000])
def test_avro_rows_are_counted_without_decoding_them(lake: Lake, codec: str, rows: int) -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    path = avro(lake, fields, ({"a": n, "b": "x" * (n % 7)} for n in range(rows)), codec=codec, sync_interval=500)
    found = facts(path)
    assert (found.format, found.rows, found.stats) == ("avro", rows, {})
    assert types(found) == {"a": "long", "b": "string"}


def test_avro_in_a_codec_that_is_not_installed(lake: Lake) -> None:
    """The rows are never unpacked, so it does not matter."""
    content = avro(lake, [{"name": "a", "type": "long"}], [{"a": 1}], codec="xz").read_bytes()
    assert facts(lake.text("a.avro", content.replace(b"\x04xz", b"\x0csnappy", 1))).rows == 1


OPTIONAL = ["null", "int"]
AVRO_TYPES: list[tuple[Any, str, bool]] = [
    ("int", "int", False),
    ("bytes", "binary", False),
    (["null", "string"], "string", True),
    (["double", "null"], "double", True),
    ("null", 'external("null")', True),
    (["null"], 'external("null")', True),
    ({"type": "string", "logicalType": "uuid"}, "uuid", False),
    ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, "uuid", False),
    ({"type": "fixed", "name": "f", "size": 5}, "fixed(5)", False),
    ({"type": "enum", "name": "e", "symbols": ["X", "Y"]}, "string", False),
    ({"type": "int", "logicalType": "date"}, "date", False),
    ({"type": "int", "logicalType": "time-millis"}, "time(3)", False),
    ({"type": "long", "logicalType": "time-micros"}, "time(6)", False),
    ({"type": "long", "logicalType": "timestamp-millis"}, "timestamptz(3)", False),
    ({"type": "long", "logicalType": "timestamp-micros"}, "timestamptz(6)", False),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp(6)", False),
    ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamptz(9)", False),
    ({"type": "string", "logicalType": "date"}, "string", False),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)", False),
    ({"type": "fixed", "name": "d", "size": 8, "logicalType": "decimal", "precision": 18}, "decimal(18,0)", False),
    ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}, "binary", False),
    ({"type": "array", "items": ["null", "int"]}, "list<int>", False),
    ({"type": "array", "items": "int"}, "list<int not null>", False),
    ({"type": "map", "values": "long"}, "map<string,long not null>", False),
    (["int", "long"], "long", False),
    (["null", "float", "double"], "double", True),
    (["null", "int", "string"], "struct<member0: int not null, member1: string not null>", True),
    (
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]}],
        },
        "struct<x: int not null, y: int>",
        False,
    ),
]


@pytest.mark.parametrize(("schema", "expected", "nullable"), AVRO_TYPES, ids=lambda value: str(value)[:40])
def test_avro_types(lake: Lake, schema: Any, expected: str, nullable: bool) -> None:
    (column,) = facts(avro(lake, [{"name": "c", "type": schema, "doc": "what it is"}])).columns
    assert column == Column("c", expected, nullable=nullable, comment="what it is")


def test_avro_types_by_name(lake: Lake) -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": point}, {"name": "b", "type": ["null", "point"]}, {"name": "c", "type": "n.point"}]
    assert set(types(facts(avro(lake, fields))).values()) == {"struct<x: int not null>"}
    assert types(facts(avro(lake, "long", [1, 2]))) == {"value": "long"}


def test_avro_schemas_that_cannot_be_stored(lake: Lake) -> None:
    tree = {"type": "array", "items": "n.row"}
    assert "a part of itself" in reason(avro(lake, [{"name": "below", "type": tree}]))
    inner = {"type": "record", "name": "inner", "fields": [{"name": "next", "type": ["null", "inner"]}]}
    assert "a part of itself" in reason(avro(lake, [{"name": "a", "type": inner}]))
    assert "cannot be stored" in reason(avro(lake, [{"name": "a" * 300, "type": "int"}]))


def test_an_avro_schema_that_grows_without_end(lake: Lake) -> None:
    """Each record has the one before it ten times: written in a few lines, with 10**30 fields."""
    fields: list[Any] = [{"name": "f", "type": "int"}]
    for level in range(30):
        record = {"type": "record", "name": f"r{level}", "fields": fields}
        fields = [{"name": "f0", "type": record}, *({"name": f"f{n}", "type": f"r{level}"} for n in range(1, 10))]
    assert "more than 10000 fields" in reason(avro(lake, fields))


def test_what_is_no_avro(lake: Lake) -> None:
    fields = [{"name": "a", "type": "long"}]
    content = avro(lake, fields, [{"a": n} for n in range(1000)], sync_interval=100).read_bytes()
    mark = content[-16:]
    end = content.index(mark) + 16
    cases = {
        "text.avro": (TEXT, "is not Avro"),
        "head.avro": (b"Obj\x01", "damaged header"),
        "cut header.avro": (content[: end - 20], "damaged header"),
        "cut mark.avro": (content[:-5], "is truncated"),
        "cut block.avro": (content[:-50], "is truncated"),
        "cut number.avro": (content[:end] + b"\xff", "is truncated"),
        "rows only.avro": (content[:end] + b"\x02", "is truncated"),
        "negative.avro": (content[:end] + b"\x02\x01" + mark, "negative"),
        "endless.avro": (content[:end] + b"\xff" * 20, "no end"),
        "other mark.avro": (content[:-1] + bytes([content[-1] ^ 1]), "does not end with the mark"),
        "schema.avro": (content.replace(b'"long"', b'"lung"'), "damaged header"),
    }
    for name, (bad, part) in cases.items():
        assert part in reason(lake.text(name, bad)), name
    for at in range(0, len(content), 11):
        infer(lake.text("flipped.avro", content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]))


# Packed text


def zstd(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content, asbytes=True)


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gz": ("gzip", gzip.compress),
    "bz2": ("bzip2", bz2.compress),
    "zst": ("zstd", zstd),
    "xz": ("xz", lzma.compress),
    "zip": ("zip", lambda content: zipped({"cars.csv": content})),
}


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_csv(lake: Lake, ending: str) -> None:
    compression, pack = PACKERS[ending]
    content = TEXT + b"3,z\n" * 300_000
    found = facts(lake.text(f"cars.csv.{ending}", pack(content)))
    assert (types(found), found.rows) == ({"a": "long", "b": "string"}, 300_002)
    assert dict(found.hints) == {"compression": compression}
    assert dict(found.dialect)["delimiter"] == ","


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst", "xz"])
def test_packed_json_tabs_and_several_streams(lake: Lake, ending: str) -> None:
    _, pack = PACKERS[ending]
    found = facts(lake.text(f"a.jsonl.{ending}", pack(b'{"a": 1}\n') + pack(b'{"a": 2.5}\n')))
    assert (types(found), found.rows) == ({"a": "double"}, 2)
    found = facts(lake.text(f"a.tsv.{ending}", pack(b"a;b\tc\n1\t2\n")))
    assert (types(found), dict(found.dialect)["delimiter"]) == ({"a;b": "long", "c": "long"}, "\t")


@pytest.mark.parametrize("ending", PACKERS)
def test_damaged_packed_text(lake: Lake, ending: str) -> None:
    _, pack = PACKERS[ending]
    content = pack(TEXT + bytes(str(list(range(50_000))), "ascii").replace(b", ", b",1\n"))
    for at, bad in ((1, content[: len(content) // 2]), (2, content[:-3]), (3, content[:20])):
        assert "damaged" in reason(lake.text(f"cut{at}.csv.{ending}", bad)), at
    assert "compressed with" in reason(lake.text("plain.csv.gz", pack(TEXT))) if ending != "gz" else True
    middle = len(content) // 2
    flipped = content[:middle] + bytes(b ^ 0x55 for b in content[middle : middle + 8]) + content[middle + 8 :]
    assert "damaged" in reason(lake.text(f"flipped.csv.{ending}", flipped))


def test_packed_in_another_way_than_the_name_says(lake: Lake) -> None:
    said = {
        "a.csv.gz": (bz2.compress(TEXT), "is not compressed with gzip, which its name says, but with bzip2"),
        "b.csv.bz2": (TEXT, "is not compressed with bzip2, which its name says"),
        "c.csv.zst": (zipped({"c.csv": TEXT}), "is not compressed with zstd, which its name says, but with zip"),
        "d.csv.xz": (gzip.compress(TEXT), "is not compressed with xz, which its name says, but with gzip"),
        "e.csv": (zstd(TEXT), "is compressed with zstd, which its name does not say"),
        "f.csv.zip": (TEXT, "is not a zip archive"),
    }
    for name, (content, part) in said.items():
        assert part in reason(lake.text(name, content)), name
    assert facts(lake.text("g.csv", b"BZh,ORC\n1,2\n")).rows == 1


def test_an_archive_of_one_file(lake: Lake) -> None:
    for name, content in {
        "cars.zip": zipped({"data/": b"", "data/cars.csv": TEXT, "__MACOSX/data/cars.csv": b"x", ".DS_Store": b"x"}),
        "cars.csv.zip": zipped({"anything.csv": TEXT}),
        "stored.zip": zipped({"cars.tsv": b"a\tb\n1\tx\n2\ty\n"}),
    }.items():
        found = facts(lake.text(name, content))
        assert (found.format, types(found), found.rows) == ("csv", {"a": "long", "b": "string"}, 2)
        assert dict(found.hints) == {"compression": "zip"}
    found = facts(lake.text("cars.zip", zipped({"cars.ndjson": b'{"a": 1}\n'})))
    assert (found.format, types(found)) == ("json", {"a": "long"})


def test_other_archives(lake: Lake) -> None:
    advice = "only an archive of one CSV or JSON file is read"
    cases = {
        "none.zip": (zipped({}), "of 0 files"),
        "two.zip": (zipped({"a.csv": TEXT, "b.csv": TEXT}), "of 2 files"),
        "parquet.zip": (zipped({"a.parquet": b"PAR1"}), "of 'a.parquet'"),
        "packed.zip": (zipped({"a.csv.gz": gzip.compress(TEXT)}), "of 'a.csv.gz'"),
        "document.csv.zip": (zipped({"a.txt": TEXT}), "of 'a.txt'"),
    }
    for name, (content, part) in cases.items():
        found = reason(lake.text(name, content))
        assert part in found, name
        assert advice in found, name
    assert "not the CSV that its name says" in reason(lake.text("a.csv.zip", zipped({"a.json": b"{}"})))
    assert "is empty" in reason(lake.text("b.zip", zipped({"a.csv": b""})))
    locked = bytearray(zipped({"a.csv": TEXT}))
    locked[6] |= 1  # the flag of a password, in both headers
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    assert "with a password: unpack it" in reason(lake.text("locked.zip", bytes(locked)))
    strange = bytearray(zipped({"a.csv": TEXT}))
    struct.pack_into("<H", strange, 8, 9)  # deflate64
    struct.pack_into("<H", strange, strange.index(b"PK\x01\x02") + 10, 9)
    assert "cannot be read" in reason(lake.text("deflate64.zip", bytes(strange)))
    wrong = bytearray(zipped({"a.csv": TEXT}))
    struct.pack_into("<I", wrong, wrong.index(b"PK\x01\x02") + 16, zlib.crc32(b"other"))
    assert "damaged" in reason(lake.text("crc.zip", bytes(wrong)))


# Tables of them


def test_tables_of_new_formats(crawler: Crawler, lake: Lake) -> None:
    for n in (1, 2):
        pyarrow.orc.write_table(ORC, lake.text(f"s/o/{n}.orc", b""))
        lake.text(f"s/v/{n}.avro", avro(lake, [{"name": "a", "type": ["null", "long"]}], [{"a": n}]).read_bytes())
        lake.text(f"s/z/{n}.csv.zip", zipped({"a.csv": TEXT}))
    (lake.root / "a.avro").unlink()
    report = crawler.crawl()
    assert (report.created, report.failures) == (3, ())
    assert [crawler.table(f"s.{name}").format for name in "ovz"] == ["orc", "avro", "csv"]
    assert [crawler.seen(f"s.{name}")["rows"] for name in "ovz"] == [6, 2, 4]
    assert crawler.columns("s.v") == {"a": "long"}
    assert crawler.table("s.z").properties["crawl.compression"] == "zip"
    writes = crawler.writes()
    assert crawler.crawl().unchanged == 3
    assert crawler.writes() == writes


def test_types_of_orc_and_avro_are_no_guesses(crawler: Crawler, lake: Lake) -> None:
    """A string in one file and a number in the other make no table of strings, as they do in CSV."""
    for name, kind in (("1", "long"), ("2", "string")):
        path = avro(lake, [{"name": "a", "type": kind}, {"name": "n", "type": "null"}])
        lake.text(f"s/v/{name}.avro", path.read_bytes())
    (lake.root / "a.avro").unlink()
    crawler.crawl()
    assert crawler.columns("s.v.1") == {"a": "long", "n": 'external("null")'}
    assert crawler.columns("s.v.2") == {"a": "string", "n": 'external("null")'}


def test_what_spark_writes_and_reads(spark: SparkSession, lake: Lake) -> None:
    """ORC has Spark's types; packed text that is said to be readable is read by Spark with as many rows."""
    frame = spark.sql(
        "SELECT 1 AS i, 'x' AS s, CAST(1.5 AS DECIMAL(9,2)) AS d, array(1L) AS l, DATE'2024-01-01' AS day"
    )
    frame.write.orc(str(lake.root / "o"))
    (path,) = (lake.root / "o").glob("*.orc")
    assert types(facts(path)) == {"i": "int", "s": "string", "d": "decimal(9,2)", "l": "list<long>", "day": "date"}
    for ending in ("gz", "bz2", "zst"):
        path = lake.text(f"cars.csv.{ending}", PACKERS[ending][1](TEXT))
        assert spark.read.option("header", "true").csv(str(path)).count() == facts(path).rows == 2
