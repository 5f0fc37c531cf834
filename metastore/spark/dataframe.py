"""Show a table as a data frame: Spark's own readers read its files as the crawler read them.

Making it runs no Spark job.

Files are read in their own columns and types, and cast to those of the catalog. A renamed column has its new name, a
retyped one its new type, and a column that no file has is null. If a value does not fit a new type, the session's
settings decide: under ANSI rules it is an error. Only files of a crawled table's format are read, and only folders that
are partitions in the catalog. This module works around three limits of Spark's readers:

* They match CSV columns by position, so files are grouped by their headers (:mod:`metastore.spark.headers`).
* They refuse some types of the catalog (nanoseconds, times of day, UUIDs), so pyarrow reads such tables of Parquet and
  ORC on the executors (:mod:`metastore.spark.arrow_reader`).
* They read every part of a nested type as nullable, so the fields here are nullable. A time of day is a string if the
  session has no type for it.

A table that cannot be read raises InvalidArgument, which says why in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.types import StructField, StructType

from metastore.columns.column import Column
from metastore.errors import InvalidArgument
from metastore.spark.arrow_reader import needs_arrow, read_through_arrow
from metastore.spark.file_columns import FileColumn, file_columns, file_layout
from metastore.spark.headers import by_header
from metastore.spark.readable import Readable
from metastore.spark.types import as_read, columns_to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ENDINGS", "dataframe", "reason_of"]

ENDINGS: Final[Mapping[str, Sequence[str]]] = {
    "parquet": ("parquet", "parq", "pq"),
    "orc": ("orc",),
    "avro": ("avro",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
}
"""The formats, and the endings of their files' names, without the ending of a compression."""

_TEXT: Final = ("csv", "json")
_NOT_UNPACKED: Final = (".xz", ".zip")
_OPTIONS: Final = ("delimiter", "header", "quote", "escape", "encoding", "multiLine", "nullValue")
"""The properties ``crawl.…`` of a table that are options of Spark's readers."""
_PREFIX: Final = "crawl."
_CHAR_MARK: Final = "__CHAR_VARCHAR_TYPE_STRING"
_LONGEST: Final = 300
_ANY: Final = Column("any", "string")


def dataframe(spark: SparkSession, readable: Readable) -> DataFrame:
    """Return the table as a data frame with the catalog's columns.

    Raises InvalidArgument that says why it cannot be read.
    """
    columns = file_columns(readable)
    try:
        return _project(spark, _scan(spark, readable, columns), columns)
    except (PySparkException, Py4JError) as error:
        raise InvalidArgument(reason_of(error)) from None


def _scan(spark: SparkSession, readable: Readable, columns: Sequence[FileColumn]) -> DataFrame:
    """Return the rows of the files, in the files' own columns."""
    table, layout = readable.table, file_layout(readable, columns)
    form = table.format
    if table.location is None:
        raise InvalidArgument("it has no location")
    if form is None or form not in ENDINGS:
        raise InvalidArgument(f"Spark reads {', '.join(ENDINGS)}; its format is {form or 'not known'}")
    keys = _keys(readable, columns)
    paths = _paths(table.location, readable.folders)
    if not paths:
        return spark.createDataFrame([], columns_to_spark([*layout, *keys]))
    files = _Files(spark, form, _options(table.properties, form) | _place(readable, form), keys)
    if left_out := _left_out(readable):
        paths = _without(files.names(paths), table.location, left_out)
        if not paths:
            return spark.createDataFrame([], columns_to_spark([*layout, *keys]))
    if any(needs_arrow(form, column.type) for column in layout):
        names = files.names(paths)
        return read_through_arrow(spark, form, names, layout, keys, _values(table.location, names, readable.folders))
    if form in _TEXT:
        return _scan_text(spark, files, paths, layout)
    return files.scan(paths, layout)


def _left_out(readable: Readable) -> Sequence[str]:
    """Return the names of the files in the table's folder that the crawler did not take into the table."""
    left_out: Sequence[str] | int = (readable.seen or {}).get("left_out", ())
    if isinstance(left_out, int):
        raise InvalidArgument(
            f"{left_out:,} files in its folder could not be crawled, too many to be left out; move them and crawl again"
        )
    return left_out


def _without(files: Iterable[str], location: str, left_out: Iterable[str]) -> list[str]:
    """Return the paths to read of ``files`` (percent-encoded URIs), without those in ``left_out``."""
    below, unwanted = len(_path(location).rstrip("/")) + 1, set(left_out)
    return [_literal(unquote(file)) for file in files if _path(unquote(file))[below:] not in unwanted]


def _scan_text(spark: SparkSession, files: _Files, paths: Sequence[str], layout: Sequence[Column]) -> DataFrame:
    names = files.names(paths)
    packed = next((name for name in names if name.endswith(_NOT_UNPACKED)), None)
    if packed is not None:
        raise InvalidArgument(f"Spark does not unpack {packed.rpartition('.')[2]}: {unquote(packed)}")
    if files.options.get("header") != "true" or not names:
        return files.scan(paths, layout)
    groups = by_header(spark, names, files.options.get("delimiter", ","), files.options.get("encoding", "UTF-8"))
    known = {column.name: column for column in layout}
    scans = []
    for header, group in groups.items():
        present = [known.get(name) or Column(name, "string") for name in header.names]
        chosen = paths if len(groups) == 1 else [_literal(unquote(name)) for name in group]
        scans.append(files.scan(chosen, present, {"enforceSchema": str(not header.exact).lower()}))
    whole = scans[0]
    for scan in scans[1:]:
        whole = whole.unionByName(scan, allowMissingColumns=True)
    return whole


class _Files:
    """Files of one format, read with the same options. ``keys`` are the columns whose values are in folders' names."""

    def __init__(self, spark: SparkSession, form: str, options: Mapping[str, str], keys: Sequence[Column]) -> None:
        self.spark, self.form, self.options, self.keys = spark, form, options, keys

    def scan(self, paths: Sequence[str], columns: Iterable[Column], more: Mapping[str, str] | None = None) -> DataFrame:
        """Return the data frame of the files at ``paths``, which have ``columns``."""
        schema = StructType([_field(column, times=True) for column in (*columns, *self.keys)])
        options = {**self.options, **(more or {})}
        return self.spark.read.format(self.form).schema(schema).options(**options).load(list(paths))

    def names(self, paths: Sequence[str]) -> list[str]:
        """Return the files' names, percent-encoded, in order."""
        return sorted(self.scan(paths, [_ANY]).inputFiles())


def _options(properties: Mapping[str, str], form: str) -> dict[str, str]:
    """Return the reader's options.

    A time without a zone, such as one in a folder's name, is in UTC, as for the crawler.
    """
    options = {"timeZone": "UTC"}
    if form in _TEXT:
        options |= {name: properties[_PREFIX + name] for name in _OPTIONS if _PREFIX + name in properties}
        if options.get("encoding", "UTF-8") not in ("UTF-8", "ISO-8859-1"):
            options["multiLine"] = "true"  # otherwise Spark splits lines at the line-end bytes of UTF-8
    return options


def _place(readable: Readable, form: str) -> dict[str, str]:
    options = {}
    if readable.seen is not None:
        options["pathGlobFilter"] = _ending_pattern(form)
    if readable.folders is not None:
        options["basePath"] = readable.table.location or ""
    return options


def _ending_pattern(form: str) -> str:
    """Return a glob for names with the endings of ``form``, in any case of letters."""
    endings = ["".join(f"[{letter}{letter.upper()}]" for letter in ending) for ending in ENDINGS[form]]
    packed = [*(f"{ending}.*" for ending in endings), "[zZ][iI][pP]"] if form in _TEXT else []
    return "*.{" + ",".join(endings + packed) + "}"


def _keys(readable: Readable, columns: Sequence[FileColumn]) -> list[Column]:
    names = list(dict.fromkeys(key for values in (readable.folders or {}).values() for key in values))
    sources = {column.source.name: column.source for column in columns if column.source is not None}
    return [sources.get(name) or Column(name, "string") for name in names]


def _paths(location: str, folders: Mapping[str, object] | None) -> list[str]:
    """Return the paths to read, in the form that Spark's reader takes."""
    if folders is None:
        return [_literal(location)]
    return [_literal(f"{location.rstrip('/')}/{name}") for name in folders]


def _literal(path: str) -> str:
    """Return ``path`` with its pattern characters escaped."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _values(
    location: str, files: Iterable[str], folders: Mapping[str, Mapping[str, str]] | None
) -> list[Mapping[str, str]]:
    """Return the values of the partition that each file is in."""
    below = len(_path(location).rstrip("/")) + 1
    return [(folders or {}).get(_path(unquote(file))[below:].rpartition("/")[0], {}) for file in files]


def _path(uri: str) -> str:
    """Return a URI without its scheme, and without the empty authority, which only some programs write."""
    return re.sub(r"^\w+:(///(?=[^/]))?", lambda m: "/" if m[1] else "", uri)


def _project(spark: SparkSession, scan: DataFrame, columns: Sequence[FileColumn]) -> DataFrame:
    """Return the catalog's columns, made from the columns of the files."""
    there = {field.name: field for field in scan.schema.fields}
    times = spark.conf.get("spark.sql.timeType.enabled", "false") == "true"
    chosen, same = [], len(there) == len(columns)
    for at, described in enumerate(columns):
        field = _field(described.column, times=times)
        here = None if described.source is None else there[described.source.name]
        same = same and here == field and scan.columns[at] == field.name
        chosen.append(_made(field, here))
    return scan if same else scan.select(*chosen)


def _made(field: StructField, here: StructField | None) -> Expression | str:
    """Return an expression for ``field`` from the file's column ``here``, with few calls: each goes to the JVM."""
    if here is None:
        return F.lit(None).cast(field.dataType).alias(field.name, metadata=field.metadata)
    name = "`" + here.name.replace("`", "``") + "`"
    if here == field:
        return name
    value = F.col(name)
    if here.dataType != field.dataType:
        value = value.cast(field.dataType)
    return value.alias(field.name, metadata=field.metadata)


def _field(column: Column, *, times: bool) -> StructField:
    """Return the field of ``column`` in a data frame of files: it can be null, and is not padded."""
    field = columns_to_spark([replace(column, type=as_read(column.type, times=times), nullable=True)]).fields[0]
    field.metadata.pop(_CHAR_MARK, None)
    return field


def reason_of(error: Exception) -> str:
    """Return the line of a Spark error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(: )?[\w.]+(Exception|Error)\b", line) or line.startswith("[")]
    text = (telling or lines or [type(error).__name__])[0].removeprefix(": ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
