"""Gravitino's REST API on two servers, the import of its database beside COPY, and the take-over of a job.

python -m tests.bench.gravitino [--quick] [--peer A --peer B [--racing C --racing D]]; the figures go to
build/bench/gravitino.json

``--peer``: two running servers of Gravitino 1.3, with the model catalog, on one database of PostgreSQL. Only what
has a peer is measured then, and the other figures of the file stay.
``--racing``: two more with ``gravitino.authorization.enable``: only those have the users and roles of the races.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import sqlalchemy as sa
from rich.console import Console

import metastore as ms
from metastore.imports.gravitino import import_gravitino
from metastore.jobs import submit
from tests.bench import gravitino_peer
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import seconds
from tests.bench.transfer import DURABLE
from tests.imports.gravitino_tables import VERSIONS, create_tables
from tests.imports.gravitino_world import World
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port, wait_until

BARS = {
    "rest_creates_per_s": reported,
    "rest_create_conflicts": Bar("<=", 0),
    "rest_list_1000_ms": reported,
    "rest_list_1000_details_ms": reported,
    "import_tables_per_s": reported,
    "import_vs_copy": reported,
    "job_take_over_worst_s": Bar("<=", 10),
    **gravitino_peer.BARS,
}
CLIENTS, CREATES, LISTED, IMPORTED, TURNS = 32, 1920, 1000, 20_000, 3
TTL = 6.0
ROOT = Path(__file__).resolve().parents[2]
S = "/api/metalakes/lake/catalogs/cat/schemas"


@contextmanager
def servers(url: str, count: int) -> Iterator[list[str]]:
    """Run servers, and give their addresses."""
    ports = [free_port() for _ in range(count)]
    command = [sys.executable, "-m", "metastore", "--url", url, "serve", "--port"]
    running = [subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, cwd=ROOT) for port in ports]
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    try:
        assert wait_until(lambda: all(_answers(one) for one in addresses), 60.0)
        yield addresses
    finally:
        for one in running:
            one.terminate()
            one.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def rest(figures: Figures, url: str, creates: int) -> None:
    """Create in one schema with 32 clients on two servers, and list a thousand tables."""
    with ms.open(url, principal="bench") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="relational", provider="hive")
        store.schemas.create("lake.cat.s")
        store.schemas.create("lake.cat.listed")
        columns = [ms.Column(f"c{n}", "string") for n in range(5)]
        store.tables.create_many("lake.cat.listed", [{"name": f"t{n:04}", "columns": columns} for n in range(LISTED)])
    with servers(url, 2) as addresses, ThreadPoolExecutor(CLIENTS) as clients:
        each = creates // CLIENTS
        work = [(addresses[n % 2], n, each) for n in range(CLIENTS)]
        list(clients.map(lambda one: _creates(one[0], one[1] + CLIENTS, 2), work))  # connections, plans
        codes: list[int] = []
        took = seconds(
            lambda: codes.extend(code for some in clients.map(lambda one: _creates(*one), work) for code in some)
        )
        figures.record("rest_creates_per_s", [len(codes) / took])
        figures.record("rest_create_conflicts", [sum(code != 0 for code in codes)])
        with httpx.Client(base_url=addresses[0], timeout=60) as client:
            for name, query in (("rest_list_1000_ms", ""), ("rest_list_1000_details_ms", "?details=true")):
                path = f"{S}/listed/tables{query}"
                figures.record(name, [1000 * seconds(lambda path=path: client.get(path)) for _ in range(7)])  # type: ignore[misc]


def _creates(address: str, number: int, count: int) -> list[int]:
    columns = [{"name": f"c{n}", "type": "string"} for n in range(5)]
    with httpx.Client(base_url=address, timeout=60) as client:
        bodies = [{"name": f"t{number}_{n}", "columns": columns} for n in range(count)]
        return [client.post(f"{S}/s/tables", json=body).json()["code"] for body in bodies]


def imported(figures: Figures, server: PostgresServer, tables: int, folder: Path) -> None:
    """Import a database of Gravitino, and COPY the rows that this makes into another one."""
    source = f"sqlite:///{folder}/gravitino.db"
    engine = sa.create_engine(source)
    with engine.begin() as connection:
        create_tables(connection, VERSIONS[-1])
        there = World(connection)
        there.fill()
        for n in range(tables):
            there.table(10_000 + n, f"table_{n}")
            for m in range(5):
                there.column(10_000 + n, 1_000_000 + 5 * n + m, f"column_{m}", m)
        for name in ("table_column_version_info", "table_version_info"):  # as Gravitino's own schemas have them
            connection.execute(sa.text(f"CREATE INDEX of_{name} ON {name} (table_id)"))
    engine.dispose()
    url, plain = server.create_database(), server.create_database()
    for one in (url, plain):
        ms.migrate(one)
    took = seconds(lambda: import_gravitino(url, source, file=folder / "import.jsonl"))
    copied = _copied(url, plain, folder)
    figures.record("import_tables_per_s", [tables / took])
    figures.record("import_vs_copy", [copied / took])


def _copied(url: str, plain: str, folder: Path) -> float:
    names = ("guard", "entity", "owned", "relation", "operation")
    with psycopg.connect(url.replace("+psycopg", "")) as connection, connection.cursor() as cursor:
        for name in names:
            with (folder / name).open("wb") as file, cursor.copy(f"COPY {name} TO STDOUT") as copy:
                for block in copy:
                    file.write(block)

    def copy_in() -> None:
        with psycopg.connect(plain.replace("+psycopg", "")) as connection, connection.cursor() as cursor:
            cursor.execute("DELETE FROM guard")
            for name in names:
                with (folder / name).open("rb") as file, cursor.copy(f"COPY {name} FROM STDIN") as copy:
                    while block := file.read(1 << 20):
                        copy.write(block)

    return seconds(copy_in)


def take_over(figures: Figures, url: str, turns: int, folder: Path) -> None:
    """Kill the server that runs a job: how long until another runs it, at worst."""
    waits = []
    with ms.open(url, principal="bench") as store:
        store.metalakes.create("jobs")
        begin = ["-c", "echo $$ >> {{log}}; sleep 30"]
        store.job_templates.create("jobs.nap", type="shell", executable="/bin/sh", arguments=begin)
        for turn in range(turns):
            log = folder / f"runs-{turn}"
            command = [sys.executable, "-m", "tests.jobs.server_program", url, str(TTL)]
            two = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
            for one in two:
                assert one.stdout is not None
                one.stdout.readline()
            job = submit(store, "jobs.nap", {"log": str(log)})
            assert wait_until(lambda log=log: _lines(log) == 1, 30.0)  # type: ignore[misc]
            seats = {holder.name: holder.owner for holder in store.leases.list() if not holder.expired}
            pid = int(seats[store.jobs.load(job).worker or ""].rpartition(":")[2])
            next(one for one in two if one.pid == pid).send_signal(signal.SIGKILL)
            began = time.monotonic()
            assert wait_until(lambda log=log: _lines(log) == 2, 60.0)  # type: ignore[misc]
            waits.append(time.monotonic() - began)
            for one in two:
                one.kill()
                one.communicate()
            store.jobs.cancel(job)
    figures.record("job_take_over_worst_s", [max(waits)])


def _lines(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gravitino", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the work")
    parser.add_argument("--peer", action="append", default=[], help="a server of Gravitino; twice, for two servers")
    parser.add_argument("--racing", action="append", default=[], help="one with authorization; twice")
    arguments = parser.parse_args()
    part = 5 if arguments.quick else 1
    console = Console(width=None if sys.stdout.isatty() else 120)
    figures, began = Figures("gravitino", BARS), time.monotonic()
    with PostgresServer(settings=DURABLE) as server, tempfile.TemporaryDirectory() as folder:
        url = server.create_database()
        ms.migrate(url)
        if arguments.peer:
            with servers(url, 2) as ours:
                gravitino_peer.beside(figures, ours, arguments.peer)
                gravitino_peer.races(figures, ours, arguments.racing)
        else:
            rest(figures, url, CREATES // part)
            take_over(figures, url, 1 if part > 1 else TURNS, Path(folder))
            imported(figures, server, IMPORTED // part, Path(folder))
    figures.show(console)
    console.print(f"{figures.write(keep=bool(arguments.peer))}; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
