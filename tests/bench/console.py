"""The console beside the API: pages of a large schema, and many open pages beside one.

python -m tests.bench.console [--quick]; the figures go to build/bench/console.json

Pages and API calls of one server take turns, so that a busy machine slows both. ``--quick`` has fewer tables.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
from rich.console import Console

import metastore as ms
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import interleaved, ratios
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
TURNS, SIZE, STREAMS, WINDOW = 15, 50, 500, 20.0
BARS = {
    "table_vs_api": Bar("<=", 3),
    "schema_vs_api": Bar("<=", 3),
    "list_vs_api": Bar("<=", 3),
    "large_vs_small_schema": Bar("<=", 1.2),
    "late_vs_first_page": Bar("<=", 1.5),
    "largest_page_kb": Bar("<=", 100),
    "table_page_ms": reported,
    "list_page_ms": reported,
    "feed_page_ms": reported,
    "statements_500_vs_1": Bar("<=", 1.1),
    "connections_500_minus_1": Bar("<=", 0),
    "threads_500_minus_1": Bar("<=", 0),
    "memory_500_minus_1_mb": Bar("<=", 50),
    "api_p99_500_vs_1": Bar("<=", 1.2),
    "changes_within_2_s": Bar(">=", 0.99),
    "changes_lost_or_doubled": Bar("<=", 0),
}
API = "/api/metalakes/lake/catalogs/c/schemas"


@contextmanager
def serving(url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server; give its address and its process."""
    port = free_port()
    command = [sys.executable, "-m", "metastore", "--url", url, "serve", "--port", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        address = f"http://127.0.0.1:{port}"
        assert wait_until(lambda: _answers(address), 60.0)
        yield address, psutil.Process(running.pid)
    finally:
        running.terminate()
        running.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def fill(url: str, tables: int) -> str:
    """Make a schema of ten tables, and a large one; return the token of a page near its end."""
    columns = [ms.Column(f"c{n}", "string", comment="a column") for n in range(10)]
    with ms.open(url, principal="bench") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", provider="hive")
        for name, count in (("small", 10), ("large", tables)):
            store.schemas.create(f"lake.c.{name}")
            store.tables.create_many(f"lake.c.{name}", ({"name": f"t{n:07}", "columns": columns} for n in range(count)))
        token = None
        for _ in range(max(1, tables // 2 // 10_000)):
            token = store.tables.page("lake.c.large", size=10_000, token=token).next_token
        return token or ""


def pages(figures: Figures, address: str, token: str) -> None:
    """Time pages and API calls in turns."""
    sizes: list[int] = []
    with httpx.Client(base_url=address, timeout=60) as client:

        def timed(where: str, **query: str) -> Callable[[], float]:
            def once() -> float:
                started = time.perf_counter()
                answer = client.get(where, params=query)
                took = time.perf_counter() - started
                assert answer.status_code == 200, (where, answer.status_code)
                if where.startswith("/console"):
                    sizes.append(len(answer.content))
                return took

            return once

        def listing(schema: str, **more: str) -> Callable[[], float]:
            return timed("/console/", path=f"lake.c.{schema}", kind="schema", list="table", **more)

        given = interleaved(
            {
                "table": timed("/console/", path="lake.c.large.t0000001", kind="table"),
                "table api": timed(f"{API}/large/tables/t0000001"),
                "schema": timed("/console/", path="lake.c.large", kind="schema", tab="details"),
                "schema api": timed(f"{API}/large"),
                "list": listing("small"),
                "list api": timed(f"{API}/small/tables", details="true"),
                "large": listing("large"),
                "late": listing("large", token=token),
                "large place": timed("/console/", path="lake.c.large", kind="schema"),
                "small place": timed("/console/", path="lake.c.small", kind="schema"),
                "feed": timed("/console/feed"),
            },
            TURNS,
        )
    for name in ("table", "schema", "list"):
        figures.record(f"{name}_vs_api", ratios(given[name], given[f"{name} api"]))
    figures.record("large_vs_small_schema", ratios(given["large place"], given["small place"]))
    figures.record("late_vs_first_page", ratios(given["late"], given["large"]))
    figures.record("largest_page_kb", [max(sizes) / 1000])
    for name, of in (("table_page_ms", "table"), ("list_page_ms", "large"), ("feed_page_ms", "feed")):
        figures.record(name, [1000 * one for one in given[of]])


class Open:
    """Open pages: streams of one server, and when each change reached each of them."""

    def __init__(self, address: str, count: int, after: str) -> None:
        self._address, self._count, self._after = address, count, after
        self.seen: list[dict[str, float]] = [{} for _ in range(count)]
        self.doubled = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._all(),))
        self._stop = asyncio.Event()
        self.ready = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert wait_until(lambda: self.ready == self._count, 60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _all(self) -> None:
        followers = [asyncio.create_task(self._follow(n)) for n in range(self._count)]
        await self._stop.wait()
        for one in followers:
            one.cancel()
        await asyncio.gather(*followers, return_exceptions=True)

    async def _follow(self, number: int) -> None:
        parts = urlsplit(self._address)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET /console/stream?after={self._after} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"event: hello"):
                    self.ready += 1
                elif line.startswith(b"id: "):
                    position = line[4:].decode().strip()
                    self.doubled += position in self.seen[number]
                    self.seen[number][position] = time.perf_counter()
        finally:
            writer.close()


def _load(url: str, server: psutil.Process, address: str, count: int, store: ms.Store) -> dict[str, float]:
    """Keep pages open while a writer changes things and a client asks the API; return what it cost."""
    statements, written = _statements(url), dict[str, float]()
    with Open(address, count, store.position()) as pages, httpx.Client(base_url=address) as client:
        time.sleep(2.0)
        begun, first, asked = time.perf_counter(), statements(), list[float]()
        last_write = 0.0
        while time.perf_counter() - begun < WINDOW:
            if time.perf_counter() - last_write > 0.2:
                store.tables.alter("lake.c.small.t0000001", ms.SetComment(str(len(written))))
                last_write = time.perf_counter()
                written[store.position()] = last_write
            started = time.perf_counter()
            client.get(f"{API}/small/tables/t0000002").raise_for_status()
            asked.append(time.perf_counter() - started)
            time.sleep(0.02)
        cost = (statements() - first) / (time.perf_counter() - begun)
        memory, threads = server.memory_info().rss, server.num_threads()
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            row = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database()"
            ).fetchone()
        time.sleep(3.0)
    late = sum(one.get(position, 1e9) - at > 2.0 for one in pages.seen for position, at in written.items())
    lost = sum(position not in one for one in pages.seen for position in written)
    return {
        "statements": cost,
        "memory": memory / 1e6,
        "threads": threads,
        "connections": float(row[0]) if row else 0.0,
        "p99": sorted(asked)[int(len(asked) * 0.99)],
        "in_time": 1 - late / (len(written) * count),
        "wrong": lost + pages.doubled,
    }


def _statements(url: str) -> Callable[[], float]:
    def count() -> float:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("select pg_stat_force_next_flush()")
            row = connection.execute(
                "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
            ).fetchone()
            return float(row[0]) if row else 0.0

    return count


def many(figures: Figures, url: str, server: psutil.Process, address: str) -> None:
    """Compare 500 open pages with one."""
    with ms.open(url, principal="bench") as store:
        _load(url, server, address, 20, store)  # connections, plans, threads
        turns = [(_load(url, server, address, 1, store), _load(url, server, address, STREAMS, store)) for _ in range(3)]
    figures.record("statements_500_vs_1", [b["statements"] / a["statements"] for a, b in turns])
    figures.record("connections_500_minus_1", [b["connections"] - a["connections"] for a, b in turns])
    figures.record("threads_500_minus_1", [b["threads"] - a["threads"] for a, b in turns])
    figures.record("memory_500_minus_1_mb", [b["memory"] - a["memory"] for a, b in turns])
    figures.record("api_p99_500_vs_1", [b["p99"] / a["p99"] for a, b in turns])
    figures.record("changes_within_2_s", [b["in_time"] for _, b in turns])
    figures.record("changes_lost_or_doubled", [a["wrong"] + b["wrong"] for a, b in turns])


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20,000 tables instead of a million")
    parser.add_argument("--tables", type=int, default=1_000_000)
    given = parser.parse_args()
    tables = 20_000 if given.quick else given.tables
    figures, began = Figures("console", BARS), time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with PostgresServer(in_memory=True) as postgres:
        url = postgres.create_database()
        ms.migrate(url)
        token = fill(url, tables)
        with serving(url) as (address, server):
            pages(figures, address, token)
            many(figures, url, server, address)
    figures.show(console)
    console.print(f"{figures.write(keep=False)}; {tables:,} tables; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
