"""The crawler against what it cannot do without: reading the footers. ``python -m tests.bench.crawl [--quick]``.

The lake has 2,000 data sets in 10,000 Parquet files of ten columns, all in the page cache. The bar is pyarrow reading
all footers, with a thread for each core. The clock of a crawl runs in a process that has a Spark context, from the end
of an empty job to the return of ``crawl``: the last commit included. Each turn has a new database.
``crawl_fresh_workers_s`` is the first crawl of a context, whose JVM has run nothing but the empty job before.
``crawl_cpu_vs_footers_cpu`` compares the processors' seconds of all processes, PostgreSQL and Spark included: it says
the same on a machine that does other things too. :mod:`tests.bench.transfer` measures export and import.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import metastore as ms
from metastore.crawl import CrawlReport, crawl
from metastore.spark.context import spark_context
from metastore.spark.java import find_java
from tests.bench import transfer
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import ratios, seconds
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port, wait_until

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
INTO = "lake.main"
SETS, FILES = 2_000, 5
BARS = {
    "crawl_vs_footers": Bar("<=", 3),
    "recrawl_vs_crawl": Bar("<=", 0.2),
    "recrawl_writes": Bar("<=", 0),
    "crawl_driver_rss_growth_mb": Bar("<=", 64),
    "crawl_cpu_vs_footers_cpu": reported,
    "footers_s": reported,
    "crawl_s": reported,
    "crawl_tables_per_s": reported,
    "crawl_fresh_workers_s": reported,
    "crawl_fresh_workers_vs_footers": reported,
    "recrawl_s": reported,
    "touched_tenth_s": reported,
    "crawl_cluster_s": reported,
    "crawl_cluster_vs_footers": reported,
    "recrawl_cluster_s": reported,
    **{
        f"{what}{history}_{how}": reported
        for history in ("", "_with_history")
        for what in ("export", "import")
        for how in ("per_s", "vs_copy")
    },
}


def build(lake: Path, sets: int) -> Path:
    """Make a lake of ``sets`` data sets; each has two columns that no other has."""
    days = pa.array(range(20), pa.date32())
    for number in range(sets):
        folder = lake / f"area{number % 40:02}" / f"set{number:04}"
        folder.mkdir(parents=True)
        for file in range(FILES):
            columns = {
                f"id_{number}": pa.array(range(file * 20, file * 20 + 20), pa.int64()),
                "name": [f"n{n}" for n in range(20)],
                "day": days,
                "at": pa.array(range(20), pa.timestamp("us")),
                f"value_{number}": [n * 0.5 for n in range(20)],
                "flag": [n % 2 == 0 for n in range(20)],
                "count": pa.array(range(20), pa.int32()),
                "city": ["x" if n % 3 else None for n in range(20)],
                "price": pa.array(range(20), pa.decimal128(12, 2)),
                "note": ["a note"] * 20,
            }
            pq.write_table(pa.table(columns), folder / f"part-{file}.parquet")
    os.sync()  # or the database's first commits wait for these files
    return lake


def read_footers(lake: Path) -> None:
    """Do what every crawl must."""
    files = sorted(map(str, lake.rglob("*.parquet")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(pq.read_metadata, files, chunksize=100):
            pass


def processor_seconds() -> float:
    """Return what this process and all below it have used, those that have ended too."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended, and its parent counts it
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def warm(context: Any, task: Any) -> None:
    """Run an empty job on every core."""
    cores = 4 * context.defaultParallelism
    context.parallelize(range(cores), cores).foreach(task)


def count_operations(url: str) -> int:
    """Return how many rows the table of operations has."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT count(*) FROM operation").fetchone()
        return int(row[0]) if row else 0


class Bench:
    """One run over one lake."""

    def __init__(self, figures: Figures, server: PostgresServer, lake: Path, sets: int, turns: int) -> None:
        self.figures, self.server, self.lake, self.sets, self.turns = figures, server, lake, sets, turns

    def database(self) -> str:
        url = self.server.create_database()
        ms.migrate(url)
        return url

    def timed(self, url: str, **options: Any) -> tuple[float, CrawlReport]:
        found: list[CrawlReport] = []
        took = seconds(lambda: found.append(crawl([self.lake], INTO, url, **options)))
        report = found[0]
        if report.failures or report.tables != self.sets:
            raise RuntimeError(f"{report.tables} tables, {len(report.failures)} failures: {report.failures[:3]}")
        return took, report

    def local(self) -> None:
        """Crawl on this machine's cores, in this process' context."""
        master = f"local[{os.cpu_count()}]"
        with spark_context(master) as context:
            warm(context, bool)  # a function of ours would bring its module, and what that imports
            fresh, _ = self.timed(self.database())
            footers, crawls, again, writes, touched, used = [], [], [], [], [], []
            read_footers(self.lake)
            for _ in range(self.turns):
                url = self.database()
                marks = [processor_seconds()]
                footers.append(seconds(lambda: read_footers(self.lake)))
                marks.append(processor_seconds())
                warm(context, bool)
                marks.append(processor_seconds())
                crawls.append(self.timed(url)[0])
                used.append((processor_seconds() - marks[2]) / (marks[1] - marks[0]))
                before = count_operations(url)
                again.append(self.timed(url)[0])
                writes.append(float(count_operations(url) - before))
                for file in self.lake.glob("area0[0-3]/*/part-0.parquet"):
                    os.utime(file)
                warm(context, bool)
                touched.append(self.timed(url)[0])
                self.server.drop_database(url)
        record = self.figures.record
        record("footers_s", footers)
        record("crawl_s", crawls)
        record("crawl_vs_footers", ratios(crawls, footers))
        record("crawl_cpu_vs_footers_cpu", used)
        record("crawl_tables_per_s", [self.sets / took for took in crawls])
        record("crawl_fresh_workers_s", [fresh])
        record("crawl_fresh_workers_vs_footers", [fresh / footers[0]])
        record("recrawl_s", again)
        record("recrawl_vs_crawl", ratios(again, crawls))
        record("recrawl_writes", writes)
        record("touched_tenth_s", touched)

    def cluster(self) -> None:
        """Crawl on a standalone master with two workers of one core, each with processes of its own."""
        with standalone() as master, spark_context(master) as context:
            took, again, footers = [], [], []
            for _ in range(self.turns):
                url = self.database()
                footers.append(seconds(lambda: read_footers(self.lake)))
                warm(context, bool)
                took.append(self.timed(url)[0])
                again.append(self.timed(url)[0])
                self.server.drop_database(url)
        self.figures.record("crawl_cluster_s", took)
        self.figures.record("crawl_cluster_vs_footers", ratios(took, footers))
        self.figures.record("recrawl_cluster_s", again)

    def memory(self, small: Path) -> None:
        """Compare the greatest size of the driver for a tenth of the files with that for all."""
        peaks = [self._peak(lake) for lake in (small, self.lake)]
        self.figures.record("crawl_driver_rss_growth_mb", [peaks[1] - peaks[0]])

    def _peak(self, lake: Path) -> float:
        command = [sys.executable, "-m", "tests.bench.crawl", "--driver", str(lake), self.database()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the driver failed:\n{done.stderr}")
        return float(json.loads(done.stdout))


def driver(lake: str, url: str) -> float:
    """Crawl twice; return the greatest size of this process in MB."""
    for _ in range(2):
        crawl([lake], INTO, url)
    (peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024


@contextmanager
def standalone() -> Iterator[str]:
    """Start a standalone Spark master and two workers; give the master's URL."""
    import pyspark

    home, port, web = Path(pyspark.__file__).parent, free_port(), free_port()
    environment = {**os.environ, "JAVA_HOME": find_java(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-cluster-")))
        environment |= {"SPARK_WORKER_DIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}

        def launch(name: str, *words: str) -> Path:
            log = folder / f"{name}.log"
            command = [str(home / "bin" / "spark-class"), *words]
            process = subprocess.Popen(command, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log

        package = "org.apache.spark.deploy"
        url = f"spark://127.0.0.1:{port}"
        log = launch("master", f"{package}.master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", str(web))
        if not wait_until(lambda: "ALIVE" in log.read_text(errors="replace"), 60):
            raise RuntimeError(f"the master does not start:\n{log.read_text(errors='replace')[-2000:]}")
        logs = [
            launch(
                f"worker{n}", f"{package}.worker.Worker", "-c", "1", "-m", "1g", "--webui-port", str(free_port()), url
            )
            for n in range(2)
        ]
        ready = lambda: all("Successfully registered" in log.read_text(errors="replace") for log in logs)  # noqa: E731
        if not wait_until(ready, 60):
            raise RuntimeError("the workers do not start:\n" + logs[0].read_text(errors="replace")[-2000:])
        yield url


def main() -> int:
    """Measure, print the table, write build/bench/crawl.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.crawl", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the lake, one turn: to see that all works")
    parser.add_argument("--only", choices=["local", "cluster", "memory", "transfer"], help="one of the measurements")
    parser.add_argument("--driver", nargs=2, metavar=("LAKE", "URL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        print(json.dumps(driver(*arguments.driver)))
        return 0
    sets, turns = (SETS // 10, 1) if arguments.quick else (SETS, 5)
    figures, console = Figures("crawl", BARS), Console(width=None if sys.stdout.isatty() else 120)
    place = ROOT / "build"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lake-", dir=place) as folder, PostgresServer(settings=DURABLE) as server:
        lake = build(Path(folder) / "all", sets)
        bench = Bench(figures, server, lake, sets, turns)
        if arguments.only in (None, "local"):
            bench.local()
        if arguments.only in (None, "memory"):
            bench.memory(build(Path(folder) / "tenth", sets // 10))
        if arguments.only in (None, "cluster"):
            bench.cluster()
        shutil.rmtree(lake)
    if arguments.only in (None, "transfer"):
        for name, value in transfer.measure(transfer.TABLES // 10 if arguments.quick else transfer.TABLES).items():
            if name in BARS:
                figures.record(name, [value])
    figures.show(console)
    console.print(str(figures.write(keep=True)), highlight=False)
    return 0


DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB"}

if __name__ == "__main__":
    sys.exit(main())
