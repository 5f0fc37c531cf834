"""Read and write while executors die: ``python -m tests.spark.cluster_program MASTER URL FOLDER``.

The first task that has seen enough kills the executor that it runs in, with all its tasks. What Spark does then is to
run them again elsewhere. It prints what came of it, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from pyspark.errors import PySparkException

import metastore as ms
from metastore.spark import register_source
from tests.docs.examples import ROOT, failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES, WRITTEN = 600, 1500
_PATIENCE = 60.0

Killer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def killer(marker: str, when: str, url: str = "") -> Killer:
    """Return what passes batches on, and kills its executor once: when a batch has the word in a path.

    ``url``: it waits until that database has rows of the write that goes on.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if any(when in str(path) for path in batch.column("path").to_pylist()) and not Path(marker).exists():
                seen = _written(url) if url else 0
                Path(marker).write_text(str(seen), encoding="utf-8")
                next(p for p in psutil.Process().parents() if p.name() == "java").send_signal(signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return run


def _written(url: str) -> int:
    """Return how many rows of the write are committed, once there are any."""
    ends = time.monotonic() + _PATIENCE
    with ms.open(url) as store:
        while not (count := sum(name.startswith("w") for name in store.tables.names("m.c.s"))):
            if time.monotonic() > ends:
                return 0
            time.sleep(0.05)
    return count


def session(master: str, folder: Path) -> SparkSession:
    """Return Spark on a cluster, with small batches: a kill hits the middle."""
    from pyspark.sql import SparkSession

    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.local.dir": folder / "local",
        "spark.pyspark.python": sys.executable,
        "spark.sql.execution.arrow.maxRecordsPerBatch": 50,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(master).appName("metastore-cluster")
    for key, value in options.items():
        builder = builder.config(key, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_source(spark)
    return spark


def again(run: Callable[[], object]) -> None:
    """Run a query; again where Spark gave Python less than it needed to start: ten seconds, on a busy machine."""
    for left in range(11, -1, -1):
        try:
            run()
        except PySparkException as error:
            if "failed to connect back" not in str(error) or not left:
                raise
            time.sleep(10)  # until others have done some of their work
        else:
            return


def fill(url: str) -> None:
    """Make tables, one of them twice as old."""
    with ms.open(url, principal="tester") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.tables.create_many("m.c.s", [{"name": f"t{n:04}"} for n in range(TABLES)])
        store.tables.alter("m.c.s.t0000", ms.SetComment("1"))


def read(spark: SparkSession, url: str, folder: Path) -> dict[str, Any]:
    """Read all entities; an executor dies in the middle."""
    entities = (
        spark.read.format("metastore").options(url=url, partitions=4, columns="id,path").load().where("path LIKE 'm%'")
    )
    kill = killer(str(folder / "read"), "t0300")
    paths = list[str]()
    again(lambda: paths.extend(row.path for row in entities.mapInArrow(kill, "id BIGINT, path STRING").collect()))
    return {"killed": (folder / "read").exists(), "rows": len(paths), "distinct": len(set(paths))}


def stream(spark: SparkSession, url: str, folder: Path) -> dict[str, Any]:
    """Stream all changes into Parquet in micro-batches; an executor dies in one of them."""
    changes = (
        spark.readStream.format("metastore").options(url=url, table="changes", maxChanges=200, partitions=2).load()
    )
    kill = killer(str(folder / "stream"), "t0300")
    told = changes.selectExpr("position", "path_after AS path").mapInArrow(kill, "position STRING, path STRING")
    query = told.writeStream.format("parquet").option("checkpointLocation", str(folder / "of_stream"))
    again(lambda: query.trigger(availableNow=True).start(str(folder / "out")).awaitTermination())
    rows = [row.position for row in spark.read.parquet(str(folder / "out")).collect()]
    with ms.open(url) as store:
        expected = [change.position for change in store.changes()]
    return {"killed": (folder / "stream").exists(), "exactly": sorted(rows) == expected}


def write(spark: SparkSession, url: str, folder: Path) -> dict[str, Any]:
    """Write new tables; an executor dies after some of its chunks are committed."""
    # long rows: between two Python processes lie buffers of 64 KB, and the writer must have seen some chunks
    rows: DataFrame = spark.range(WRITTEN).selectExpr(
        "'table' AS kind", "format_string('m.c.s.w%04d', id) AS path", "repeat('made ', 100) AS comment"
    )
    kill = killer(str(folder / "write"), f"w{WRITTEN - 50:04}", url)
    given = rows.coalesce(1).mapInArrow(kill, "kind STRING, path STRING, comment STRING")
    again(lambda: given.write.format("metastore").options(url=url, table="entities").mode("append").save())
    with ms.open(url) as store:
        names = [t.version for t in store.tables.list("m.c.s") if t.name.startswith("w")]
        broken = [str(one) for one in store.verify()]
    before = int((folder / "write").read_text(encoding="utf-8"))
    return {"before": before, "rows": len(names), "versions": sorted(set(names)), "broken": broken}


def run_page(url: str, folder: Path) -> list[str]:
    """Run docs/pipeline.md on this database; return what fails. ``folder`` is the current one."""
    text = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8").replace("```py\n", "```python\n")
    named = 'url = f"sqlite:///{folder}/catalog.db"\n'
    assert text.count("```python\n") == 8
    assert text.count(named) == 1
    namespace = {"__name__": "__example__"}
    wrong = list(failures(text.replace(named, f"url = {url!r}\n"), "pipeline.md", folder, namespace))
    with ms.open(url) as store:
        if not wrong:
            assert dict(store.statistics.load("lake.c.shop.orders", "freshness").values) == {"days": 0}
            crawled = [table.path for table in store.tables.list("lake.raw.shop")]
            assert [dict(store.statistics.load(path, "churn").values) for path in crawled] == [{"changes": 1}] * 2
        return wrong


def main(master: str, url: str, folder: Path) -> None:
    """Do all of it, and print what came of it."""
    spark = session(master, folder)
    try:
        os.chdir(folder)
        page = run_page(url, folder)  # first: it says who made all tables
        fill(url)
        found: dict[str, Any] = {one.__name__: one(spark, url, folder) for one in (read, stream, write)}
        found["page"] = page
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
