"""Export and import against COPY of the same rows, on one PostgreSQL, in one run.

python -m tests.bench.transfer [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
from rich.console import Console

import metastore as ms
from tests.bench.timing import seconds
from tests.servers.postgres import PostgresServer

__all__ = ["measure"]

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "1GB"}
COLUMNS = [ms.Column(f"column_{n}", type_) for n, type_ in enumerate(("long", "string", "date", "double", "boolean"))]
TABLES, SCHEMAS = 100_000, 10
_MOVED = {False: ("guard", "entity"), True: ("guard", "entity", "operation")}
"""What COPY moves against an export: without ids what the lines are made of, with history everything."""


def measure(tables: int = TABLES) -> dict[str, float]:
    """Return entities per second, and the share of what COPY of the same rows does, of each direction."""
    found: dict[str, float] = {}
    with PostgresServer(settings=DURABLE) as server, tempfile.TemporaryDirectory() as folder:
        source = _filled(server, tables)
        for history in (False, True):
            suffix = "_with_history" if history else ""
            rates = _one(server, source, tables, history, Path(folder))
            found |= {name.format(suffix): value for name, value in rates.items()}
    return found


def _one(server: PostgresServer, source: str, tables: int, history: bool, folder: Path) -> Mapping[str, float]:
    file = folder / f"export-{history}.jsonl"
    with ms.open(source) as store:
        exported = seconds(lambda: store.export_to(file, history=history))
    out = {name: folder / f"{name}.copy" for name in _MOVED[history]}
    copied_out = seconds(lambda: _copy_out(source, out))
    target, plain = _migrated(server), _migrated(server)
    if history:
        imported = seconds(lambda: ms.restore(target, file))
    else:
        with ms.open(target, principal="bench") as store:
            imported = seconds(lambda: store.import_from(file))
    copied_in = seconds(lambda: _copy_in(plain, out))
    for url in (target, plain):
        server.drop_database(url)
    return {
        "export{}_per_s": tables / exported,
        "export{}_vs_copy": copied_out / exported,
        "import{}_per_s": tables / imported,
        "import{}_vs_copy": copied_in / imported,
        "copy_out{}_per_s": tables / copied_out,
        "copy_in{}_per_s": tables / copied_in,
    }


def _migrated(server: PostgresServer) -> str:
    url = server.create_database()
    ms.migrate(url)
    return url


def _filled(server: PostgresServer, tables: int) -> str:
    url = _migrated(server)
    with ms.open(url, principal="bench") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.sales", type="relational")
        for n in range(SCHEMAS):
            schema = store.schemas.create(f"lake.sales.s{n}")
            rows = ({"name": f"table_{m}", "columns": COLUMNS} for m in range(tables // SCHEMAS))
            store.tables.create_many(schema, rows)
    return url


def _copy_out(url: str, files: Mapping[str, Path]) -> None:
    with psycopg.connect(url.replace("+psycopg", "")) as connection, connection.cursor() as cursor:
        for name, path in files.items():
            with path.open("wb") as file, cursor.copy(f"COPY {name} TO STDOUT") as copy:
                for block in copy:
                    file.write(block)


def _copy_in(url: str, files: Mapping[str, Path]) -> None:
    with psycopg.connect(url.replace("+psycopg", "")) as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM guard")  # the root, which is in the file too
        for name, path in files.items():
            with path.open("rb") as file, cursor.copy(f"COPY {name} FROM STDIN") as copy:
                while block := file.read(1 << 20):
                    copy.write(block)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.transfer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the tables")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    for name, value in measure(TABLES // 10 if arguments.quick else TABLES).items():
        console.print(f"{name:32} {value:12,.3f}")


if __name__ == "__main__":
    main()
