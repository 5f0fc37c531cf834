"""``python -m tests.bench.peers.catalogs``: the same mix by the catalogs of others, on tables of their own.

PyIceberg's SqlCatalog, if it is installed. DuckLake is left out: its extension for DuckDB is in no package, but
downloaded from a server of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.bench.contention.crew import together
from tests.bench.core.setting import CATALOG, Setting
from tests.bench.figures import Figures
from tests.bench.peers.anomalies import last_alters
from tests.bench.peers.contender import Did
from tests.bench.peers.mix import Lake
from tests.bench.peers.told import Figure
from tests.bench.peers.window import WARM, Cell, windows
from tests.servers.proxy import PostgresProxy

LAKE = Lake(schemas=10, tables=500)
"""Smaller: making one takes 20 times as long as in ours."""


def main() -> int:
    """Print a line for each number of clients."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers.catalogs", description=__doc__)
    parser.add_argument("--length", type=float, default=4.0, metavar="SECONDS", help="how long a window is")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    arguments = parser.parse_args()
    console = Console()
    if importlib.util.find_spec("pyiceberg") is None:
        console.print("pyiceberg is left out: the package is missing (pip install -e '.[bench]')")
        return 0
    setting = Setting(Figures("catalogs", {}), console, quick=False)
    with setting.closing, tempfile.TemporaryDirectory(prefix="peers-") as folder:
        measure(setting, Path(folder), arguments.clients, arguments.length)
    return 0


def measure(setting: Setting, folder: Path, clients: list[int], length: float, lake: Lake = LAKE) -> int:
    """Measure PyIceberg's with each number of clients; return how many acknowledged alters are lost."""
    from tests.bench.peers.iceberg import PyIceberg, plant

    spaces = {f"{CATALOG}.{name}": [f"{t}" for t in tables] for name, tables in lake.names().items()}
    url, lost = setting.durable.create_database(), 0
    plant(url, (folder / "warehouse").as_uri(), {**spaces, WARM: []})
    print_trips(setting, url, lake)
    for number, count in enumerate(clients):
        recorded = folder / f"{count}"
        cells = [
            Cell("pyiceberg", count, url, None, 2 * number, 0, length),
            Cell("pyiceberg", count, url, None, 2 * number + 1, 1, length / 2, recorded),
        ]
        found = together([(windows, (cells, lake, process)) for process in range(count)], 10 * length + 20)
        figure = Figure.of([told for process in found for told in process[0]], length)
        contender = PyIceberg(url, "check")
        kept = contender.kept(list(spaces))
        contender.close()
        there = {table for table, _ in kept}
        wrong = sum(kept.get(key) != value for key, value in last_alters(recorded).items() if key[0] in there)
        lost += wrong
        setting.console.print(
            f"pyiceberg, {count} clients: {figure.rate:,.0f} ops/s, p50 {figure.p50:.2f} ms, p99 {figure.p99:.1f} ms, "
            f"{figure.lost:.3f} lost attempts/op, {wrong} acknowledged alters lost",
            highlight=False,
        )
    return lost


def print_trips(setting: Setting, url: str, lake: Lake) -> None:
    """Print how often each operation waits for the server, where nobody else is."""
    from tests.bench.peers.iceberg import PyIceberg

    path, me = lake.path(0), threading.get_ident()
    with PostgresProxy("127.0.0.1", setting.durable.port) as proxy:
        contender = PyIceberg(proxy.url_for(url), "trips")
        calls: dict[str, Callable[[], Did]] = {
            "load": lambda: contender.load(path),
            "alter": lambda: contender.alter(path, "key", str(me)),
            "rename": lambda: contender.rename(path, "away"),
            "drop": lambda: contender.drop(f"{path.rpartition('.')[0]}.away"),
            "create": lambda: contender.create(path),
        }
        found = {}
        for _ in range(3):
            for verb, call in calls.items():
                before = proxy.round_trips
                call()
                found[verb] = proxy.round_trips - before
        contender.close()
    setting.console.print(f"pyiceberg, round trips: {found}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
