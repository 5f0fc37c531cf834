"""Read Parquet and ORC that Spark's readers refuse, with pyarrow on the executors, as the crawler reads them.

Spark refuses nanoseconds, times of day and UUIDs in Parquet, and reads timestamps in ORC in the JVM's time zone. Here
nanoseconds are cut to microseconds; UUIDs and times of day become strings. Spark does not tell pyarrow which columns
and files a query needs, so pyarrow reads all of them. The workers need ``metastore``, and access to the files.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs, orc
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from metastore.columns.arrow import columns_to_arrow
from metastore.columns.column import Column
from metastore.columns.types import Atomic, External, Type, parse
from metastore.names import clean_name
from metastore.spark.context import workers_like_us
from metastore.spark.types import columns_to_spark, with_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["needs_arrow", "read_through_arrow"]

_DIGITS: Final = 6
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_STRING: Final = Atomic("string")
_STAMPS: Final = ("timestamp", "timestamptz")
_FILES: Final = "file string, keys array<string>"
_TASKS: Final = 4
"""Tasks per core."""


def needs_arrow(form: str | None, text: str) -> bool:
    """Tell whether pyarrow must read the type ``text``: Spark's reader of this format refuses or misreads it."""
    if form == "orc":
        return with_leaves(text, lambda kind: _STRING if kind.name in _STAMPS else kind) != str(parse(text))
    return form == "parquet" and with_leaves(text, _leaf) != str(parse(text))


def _leaf(kind: Atomic | External) -> Type:
    if kind.name in ("time", "uuid"):
        return _STRING
    if isinstance(kind, Atomic) and kind.name in _STAMPS and kind.arguments[0] > _DIGITS:
        return Atomic(kind.name, (_DIGITS,), bare=True)
    return kind


def read_through_arrow(
    spark: SparkSession,
    form: str,
    files: Sequence[str],
    columns: Iterable[Column],
    keys: Sequence[Column],
    values: Iterable[Mapping[str, str]],
) -> DataFrame:
    """Return the data frame of ``files``, percent-encoded URIs, which have ``columns``.

    ``keys`` are the columns of partitions; ``values`` are their values for each file.
    """
    plain = [replace(column, type=with_leaves(column.type, _leaf), comment=None) for column in columns]
    written = [Column(f"key {at}", "string") for at in range(len(keys))]
    rows = [(file, [_key(value, key) for key in keys]) for file, value in zip(files, values, strict=True)]
    tasks = max(1, min(len(rows), _TASKS * spark.sparkContext.defaultParallelism))
    shared = spark.createDataFrame(rows, _FILES).repartition(tasks)
    with workers_like_us(spark.sparkContext):
        scan = shared.mapInArrow(_reader(form, columns_to_arrow(plain)), columns_to_spark([*plain, *written]))
    selected = [F.col(_quoted(column.name)) for column in plain]
    for name, key in zip(written, keys, strict=True):
        field = columns_to_spark([key]).fields[0]
        selected.append(F.col(_quoted(name.name)).cast(field.dataType).alias(key.name))
    return scan.select(*selected)


def _key(values: Mapping[str, str], key: Column) -> str | None:
    """Return the value of a partition's column; a time without a zone is in UTC."""
    text = values.get(key.name)
    if text is None or text == _NULL:
        return None
    if parse(key.type).name != "timestamptz":
        return text
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).isoformat()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_Batches = Iterable[Any]


def _reader(form: str, schema: Any) -> Callable[[_Batches], Iterator[Any]]:
    """Return a function that reads, on an executor, the files that the rows of its batches name."""

    def read(batches: _Batches) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _batches(row["file"], form, schema, row["keys"])

    return read


def _batches(file: str, form: str, schema: Any, keys: Sequence[str | None]) -> Iterator[Any]:
    """Yield the rows of ``file`` as batches of ``schema``, with a column for each of ``keys``."""
    system, path = _place(file)
    names = [*schema.names, *(f"key {at}" for at in range(len(keys)))]
    with system.open_input_file(path) as stream:
        for batch in _read(stream, form, schema.names):
            here = {clean_name(name): array for name, array in zip(batch.schema.names, batch.columns, strict=True)}
            rows = batch.num_rows
            arrays = [
                _cast(here[field.name], field.type) if field.name in here else pa.nulls(rows, field.type)
                for field in schema
            ]
            arrays += [pa.repeat(pa.scalar(key, pa.string()), rows) for key in keys]
            yield pa.RecordBatch.from_arrays(arrays, names)


def _read(stream: Any, form: str, names: Sequence[str]) -> Iterator[Any]:
    """Yield batches of a file, with those columns of ``names`` that it has."""
    if form == "parquet":
        parquet = pq.ParquetFile(stream)
        yield from parquet.iter_batches(columns=_wanted(parquet.schema_arrow, names))
        return
    file = orc.ORCFile(stream)
    wanted = _wanted(file.schema, names)
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=wanted)


def _wanted(schema: Any, names: Sequence[str]) -> list[str]:
    return [name for name in schema.names if clean_name(name) in names]


def _place(file: str) -> tuple[Any, str]:
    """Return the file system of a Hadoop URI, and the path in it."""
    scheme, _, path = unquote(file).partition(":")
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + path.lstrip("/")
    place: tuple[Any, str] = fs.FileSystem.from_uri(f"{scheme.removesuffix('a') if scheme == 's3a' else scheme}:{path}")
    return place


def _cast(array: Any, kind: Any) -> Any:
    """Return ``array`` as ``kind``; digits of a second that Spark does not have are cut off."""
    if array.type == pa.uuid():
        return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in _storage(array)], kind)
    return array.cast(kind, safe=False)


def _storage(array: Any) -> list[bytes | None]:
    stored: list[bytes | None] = array.storage.to_pylist()
    return stored
