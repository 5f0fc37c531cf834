"""Gather the records of a run: write the clients' logs, the feed and the tables as Parquet to the record folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from metastore.checker.clients import run_facts
from metastore.checker.documents import Documents
from metastore.checker.records import OPERATIONS
from metastore.checker.spark_paths import readable
from metastore.checker.tree import DEEPEST
from metastore.clock import SYSTEM
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.names import format_path
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.snapshot import TableSnapshot
from metastore.store import Store, open_store

__all__ = ["copy_tables", "gather", "join_logs", "operations", "position", "since"]

_ROWS: Final = 50_000
_TORN: Final = "_torn"
_PATIENCE, _AGAIN = 30.0, 0.5
"""Seconds to wait for an unavailable database, and between two attempts."""
_EVENT: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("principal", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("owner_id", pa.int64()),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("path_before", pa.string()),
        pa.field("path_after", pa.string()),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("wrong", pa.string()),
        pa.field("other_id", pa.int64()),
        pa.field("other_path", pa.string()),
        pa.field("scope_version", pa.int64()),
        pa.field("fences", pa.string()),
    ]
)
_ENTITY: Final = pa.schema(
    [
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
    ]
)


def position(url: str) -> int:
    """Return the last position of the feed as a number. The events of a run that begins now have later positions."""
    with open_store(url) as store, store._session.backend.snapshot() as snapshot:  # noqa: SLF001
        return snapshot.numbers()[1]


def since(folder: Path) -> int:
    """Return the position before a run's first call, from ``since`` in its ``run.json``; else 0.

    Earlier events belong to no client of this run, whatever principal they carry.
    """
    return int(run_facts(folder).get("since") or 0)


def gather(spark: SparkSession, folder: Path, url: str) -> None:
    """Write ``operations/``, ``feed/`` and ``tables/`` of a record folder whose clients have ended.

    Waits half a minute for an unavailable database, then raises BackendUnavailable. Raises InvalidArgument for a
    damaged log. An incomplete last line is not damage, because a killed client leaves one.
    """
    copy_tables(folder, url)
    join_logs(spark, folder)


def copy_tables(folder: Path, url: str) -> None:
    """Write ``feed/`` and ``tables/``. The steps after this do not need the database.

    Waits half a minute for an unavailable database, then raises BackendUnavailable.
    """
    with _opened(url) as store, store._session.backend.snapshot() as snapshot:  # noqa: SLF001
        _write(folder / "feed", _EVENT, _events(snapshot))
        _write(folder / "tables", _ENTITY, _entities(snapshot))


def join_logs(spark: SparkSession, folder: Path) -> None:
    """Write ``operations/`` from the clients' logs and ``feed/``. Raises InvalidArgument for a damaged log."""
    operations(spark, folder).write.mode("overwrite").parquet(str(folder / "operations"))


def _opened(url: str) -> Store:
    ends = SYSTEM.monotonic() + _PATIENCE
    while True:
        try:
            return open_store(url)
        except BackendUnavailable as error:
            if not error.transient or SYSTEM.monotonic() > ends:
                raise
            SYSTEM.sleep(_AGAIN)


def operations(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the operations from the clients' logs and the feed, including those that never returned."""
    columns = ", ".join(part for part in _split(OPERATIONS) if not part.startswith("position"))
    schema = f"begin struct<{_nested(columns)}>, end struct<{_nested(columns)}>, {_TORN} string"
    lines = spark.read.schema(schema).option("columnNameOfCorruptRecord", _TORN).json(readable(folder / "log"))
    _check_torn(lines, folder)
    ended = lines.where("end.outcome is not null").select("end.*")
    begun = lines.where("begin.start is not null").select("begin.*")
    open_ = begun.join(ended.select("client", "number"), ["client", "number"], "left_anti")
    positions = (
        spark.read.parquet(readable(folder / "feed"))
        .where(f"principal is not null and seq > {since(folder)}")
        .groupBy("principal")
        .agg(F.max("seq").alias("position"), F.first("operation_id").alias("_id"))
    )
    noted = ended.unionByName(open_)
    noted = noted.join(positions, F.concat_ws("/", noted.client, noted.number) == positions.principal, "left")
    return noted.withColumn("operation_id", F.coalesce("operation_id", "_id")).drop("_id", "principal")


def _check_torn(lines: DataFrame, folder: Path) -> None:
    """Raise InvalidArgument for a line that is not a record, unless it is the last line of a killed client's log."""
    torn = lines.where(f"{_TORN} is not null or (begin.start is null and end.outcome is null)")
    file = F.element_at(F.split("_metadata.file_path", "/"), -1)
    for row in torn.groupBy(file.alias("file")).agg(F.count("*").alias("lines")).collect():
        log = folder / "log" / unquote(row.file)
        if row.lines > 1 or not _ends_torn(log):
            raise InvalidArgument(f"{log} is damaged: {row.lines:,} of its lines are not records")


def _ends_torn(log: Path) -> bool:
    with log.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _split(schema: str) -> Iterator[str]:
    """Yield the columns of a schema."""
    depth, begin = 0, 0
    for at, letter in enumerate(schema):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            yield schema[begin:at].strip()
            begin = at + 1
    yield schema[begin:].strip()


def _nested(columns: str) -> str:
    """Return columns as the fields of a struct, ``name: type``. A line may leave out each of them."""
    fields = [part.replace(" not null", "").split(" ", 1) for part in _split(columns)]
    return ", ".join(f"{name}: {kind}" for name, kind in fields)


def _events(snapshot: TableSnapshot) -> Iterator[Mapping[str, Any]]:
    names = [*[field.name for field in _EVENT if field.name != "wrong"], "doc", "changes"]
    documents = Documents()
    for row in snapshot.rows("operation", names, ["seq"]):
        event = dict(zip(names, row, strict=True))
        if event["kind"] != "lease" and event["entity_id"] is not None:
            doc, changes = event.pop("doc"), event.pop("changes")
            yield event | {"operation_id": str(event["operation_id"]), "wrong": documents.wrong(event, doc, changes)}


def _entities(snapshot: TableSnapshot) -> Iterator[Mapping[str, Any]]:
    """Yield the entities to which a path leads."""
    stands: dict[int, tuple[int, str, str]] = {}
    for row_id, parent_id, kind, name, state in snapshot.rows(
        "guard", ["id", "parent_id", "kind", "name", "state"], ["id"]
    ):
        if state == LIVE:
            stands[row_id] = parent_id, kind, name
    for row_id, version in snapshot.rows("entity", ["id", "version"], ["id"]):
        path = _path(stands, row_id)
        if path is not None:
            yield {"entity_id": row_id, "kind": stands[row_id][1], "path": path, "version": version}


def _path(stands: Mapping[int, tuple[int, str, str]], row_id: int) -> str | None:
    names: list[str] = []
    for _ in range(DEEPEST):
        if row_id == ROOT_ID:
            return format_path(reversed(names))
        if row_id not in stands:
            return None
        row_id, _, name = stands[row_id]
        names.append(name)
    return None  # the entity is its own ancestor


def _write(folder: Path, schema: pa.Schema, rows: Iterator[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(folder / "part-0.parquet", schema) as writer:
        while some := list(islice(rows, _ROWS)):
            writer.write_table(_table(some, schema))


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)
