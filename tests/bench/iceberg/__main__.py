"""Measure on SQLite and PostgreSQL, beside PyIceberg's SQL catalog; write build/bench/iceberg.json."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from rich.console import Console

import metastore as ms
from metastore.pyiceberg import MetastoreCatalog
from tests.bench.figures import Bar, Figures, reported
from tests.bench.iceberg.loads import latencies, server
from tests.bench.iceberg.work import SCHEMA, Done, Job, Work, work
from tests.servers.postgres import PostgresServer

DATABASES = ("sqlite", "postgres")
CONTENDERS = ("metastore", "sqlcatalog")
WORKS: tuple[Work, ...] = ("own", "hot", "create")
CLIENTS = 32


def bars() -> dict[str, Bar]:
    """Return every figure and its bar."""
    found: dict[str, Bar] = {}
    for database in DATABASES:
        found |= {
            f"{database}_own_rate_vs_sqlcatalog": Bar(">=", 2),
            f"{database}_hot_rate_vs_sqlcatalog": Bar(">=", 3),
            f"{database}_create_vs_sqlcatalog": Bar(">=", 2),
            f"{database}_hot_failures": Bar("<=", 0),
            f"{database}_hot_lost": Bar("<=", 0),
        }
        for contender in CONTENDERS:
            found |= {f"{database}_{contender}_{what}_per_s": reported for what in WORKS}
            found[f"{database}_{contender}_hot_failed_share"] = reported
    return found | {
        "list_first_page_ms": Bar("<=", 50),
        "rest_load_p99_ms": reported,
        "rest_loads_per_s": reported,
        "library_loads_per_s": reported,
        "rest_load_vs_library": Bar(">=", 0.3),
        "load_of_the_machine": reported,
    }


@dataclass
class Run:
    """One run: how many processes, and for how many seconds they do each work."""

    figures: Figures
    folder: Path
    writers: int
    seconds: float
    pool: ProcessPoolExecutor

    def properties(self, contender: str, uri: str) -> dict[str, str]:
        """Return what opens a contender's catalog."""
        own = {"py-catalog-impl": "metastore.pyiceberg.MetastoreCatalog", "metalake": "lake", "catalog": "ice"}
        warehouse = f"file://{self.folder}/{contender}-{uri.partition(':')[0]}"
        Path(warehouse.removeprefix("file://")).mkdir(exist_ok=True)
        return {**(own if contender == "metastore" else {"type": "sql"}), "uri": uri, "warehouse": warehouse}

    def compare(self, database: str, fresh: Callable[[], str]) -> None:
        """Let both contenders do each work, in turns, each on a database of its own."""
        opened = {contender: self.properties(contender, fresh()) for contender in CONTENDERS}
        catalogs = {contender: load_catalog("bench", **properties) for contender, properties in opened.items()}
        for catalog in catalogs.values():
            catalog.create_namespace("a")
            catalog.create_table("a.hot", SCHEMA, properties={"commit.retry.num-retries": "0"})
        for what in WORKS:
            rates = {contender: self._rate(database, contender, what, opened[contender]) for contender in CONTENDERS}
            name = "create_vs_sqlcatalog" if what == "create" else f"{what}_rate_vs_sqlcatalog"
            self.figures.record(f"{database}_{name}", [rates["metastore"] / max(rates["sqlcatalog"], 0.01)])
        self._check(database, catalogs["metastore"])

    def _rate(self, database: str, contender: str, what: Work, properties: dict[str, str]) -> float:
        begins = time.time() + 2.0
        jobs = [Job(what, tuple(properties.items()), n, begins, self.seconds) for n in range(self.writers)]
        done: list[Done] = list(self.pool.map(work, jobs))
        rate = sum(one.acknowledged / one.seconds for one in done)
        self.figures.record(f"{database}_{contender}_{what}_per_s", [rate])
        if what == "hot":
            failed, acknowledged = (sum(getattr(one, name) for one in done) for name in ("failed", "acknowledged"))
            self.figures.record(f"{database}_{contender}_hot_failed_share", [failed / max(1, failed + acknowledged)])
            if contender == "metastore":
                self.figures.record(f"{database}_hot_failures", [failed])
                self._acknowledged = acknowledged
        return rate

    def _check(self, database: str, catalog: Catalog) -> None:
        rows = catalog.load_table("a.hot").scan().to_arrow().num_rows
        self.figures.record(f"{database}_hot_lost", [abs(self._acknowledged - rows)])

    def reads(self, url: str, tables: int) -> None:
        """Measure the first page of a long list, and loads."""
        properties = self.properties("metastore", url)
        catalog = load_catalog("bench", **properties)
        assert isinstance(catalog, MetastoreCatalog)
        catalog.create_namespace("long")
        made = catalog.create_table("long.t", SCHEMA)
        fields = {"format": "iceberg", "properties": {"metadata_location": made.metadata_location}}
        columns = [ms.Column("n", "long")]
        new = [{"name": f"t{n:06d}", "columns": columns, **fields} for n in range(tables)]
        catalog.store.tables.create_many("lake.ice.long", new)
        took = []
        for _ in range(11):
            started = time.perf_counter()
            catalog.tables_page(("long",), 1000, None)
            took.append((time.perf_counter() - started) * 1000)
        self.figures.record("list_first_page_ms", took)
        library, _ = latencies(CLIENTS, self.seconds, lambda: lambda: catalog.load_table("long.t"))
        with server(url, properties["warehouse"]) as address:
            rest, found = latencies(CLIENTS, self.seconds, lambda: _get(f"{address}/namespaces/long/tables/t"))
        self.figures.record("library_loads_per_s", [library])
        self.figures.record("rest_loads_per_s", [rest])
        self.figures.record("rest_load_vs_library", [rest / library])
        self.figures.record("rest_load_p99_ms", [found[int(len(found) * 0.99)] * 1000])


def _get(address: str) -> Callable[[], object]:
    """Return a load over a connection that stays open, by the lightest client: it shares the cores with the server."""
    place = urlsplit(address)
    connection = HTTPConnection(place.netloc, timeout=60)

    def get() -> None:
        connection.request("GET", place.path)
        answer = connection.getresponse()
        answer.read()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"the server answered {answer.status}")

    return get


def main() -> None:
    """Run what the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.iceberg", description=__doc__)
    parser.add_argument("--writers", type=int, default=8, help="processes that write at once")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each work is measured")
    parser.add_argument("--tables", type=int, default=10_000, help="tables of the long list")
    options = parser.parse_args()
    figures = Figures("iceberg", bars())
    figures.record("load_of_the_machine", [os.getloadavg()[0] / (os.cpu_count() or 1)])
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer(in_memory=True) as postgres,
        ProcessPoolExecutor(options.writers, multiprocessing.get_context("spawn")) as pool,
    ):
        run = Run(figures, Path(folder), options.writers, options.seconds, pool)
        names = iter(range(100))
        run.compare("sqlite", lambda: f"sqlite:///{folder}/{next(names)}.db")
        run.compare("postgres", postgres.create_database)
        run.reads(postgres.create_database(), options.tables)
    figures.show(Console())
    print(figures.write(keep=False))


if __name__ == "__main__":
    main()
