"""Measure this tree beside the tree of an earlier commit: ``python -m tests.bench.before --before REV``.

Both are opened on databases of one server and take turns of a fraction of a second, so that a change of the machine's
mood meets both. A ratio is that of one turn, the figure the median of all. Above 1, this tree is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track

from tests.bench.core.setting import COMMON, DURABLE
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import ratios
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[3]
CLIENT = Path(__file__).with_name("client.py")
HOT_CLIENTS = 8
COUNTS = {"alter": 150, "create": 150, "drop": 100, "load": 400, "hot": 25}
"""How many operations a turn has; of "hot", for each client."""

BARS = {
    "write_vs_before": Bar(">=", 0.98),
    "read_vs_before": Bar(">=", 0.98),
    "hot_vs_before": Bar(">=", 0.95),
    **{f"{verb}_vs_before": reported for verb in ("alter", "create", "drop")},
    **{f"{verb}_cpu_vs_before": reported for verb in ("alter", "create", "load")},
    **{f"{verb}_per_s": reported for verb in COUNTS},
}


class Side:
    """One tree: its database and its clients."""

    def __init__(self, root: Path, server: PostgresServer, closing: contextlib.ExitStack) -> None:
        self.rates: dict[str, list[float]] = {verb: [] for verb in COUNTS}
        self.cpu: dict[str, list[float]] = {verb: [] for verb in COUNTS}
        url = server.create_database()
        environment = os.environ | {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}
        prepare = (
            "import sys, metastore as ms; ms.migrate(sys.argv[1]); s = ms.open(sys.argv[1]);"
            "s.metalakes.create('lake');"
            "s.catalogs.create('lake.sales', type='relational'); s.schemas.create('lake.sales.s');"
            "s.tables.create('lake.sales.hot.counter', parents=True)"
        )
        subprocess.run([sys.executable, "-c", prepare, url], env=environment, check=True, cwd="/")
        self._clients = []
        for _ in range(HOT_CLIENTS):
            command = [sys.executable, str(CLIENT), url]
            pipe = subprocess.PIPE
            client = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True, cwd="/")
            closing.callback(client.wait)
            closing.callback(client.stdin.close)  # type: ignore[union-attr]
            self._clients.append(client)
            used = Path(self._read(client)["library"]).resolve().parent
            if used != root.resolve():
                raise SystemExit(f"the client of {root} took the library of {used}")

    @staticmethod
    def _read(client: subprocess.Popen[str]) -> dict[str, Any]:
        assert client.stdout is not None
        found: dict[str, Any] = json.loads(client.stdout.readline())
        return found

    def turn(self, verb: str, count: int, *, keep: bool) -> None:
        """Let one client work, or all of them on the hot entity."""
        clients = self._clients if verb == "hot" else self._clients[:1]
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(json.dumps({"verb": verb, "count": count}) + "\n")
            client.stdin.flush()
        answers = [self._read(client) for client in clients]
        if keep:
            self.rates[verb].append(len(clients) * count / max(a["seconds"] for a in answers))
            self.cpu[verb].append(sum(a["cpu"] for a in answers) / (len(clients) * count))


def tree_of(revision: str) -> Path:
    """Return a folder with the files of a commit."""
    name = subprocess.check_output(["git", "rev-parse", "--short=12", f"{revision}^{{commit}}"], cwd=ROOT, text=True)
    folder = ROOT / "build" / "before" / name.strip()
    if not folder.exists():
        packed = subprocess.check_output(["git", "archive", name.strip(), "metastore", "retry", "migrations"], cwd=ROOT)
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="tar")
    return folder


def main() -> int:
    """Print the table, write build/bench/before.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.before", description=__doc__)
    parser.add_argument("--before", default="HEAD~1", metavar="REV", help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=40, help="how many turns each verb has")
    parser.add_argument("--only", choices=list(COUNTS), action="append", help="a verb")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with contextlib.ExitStack() as closing:
        server = closing.enter_context(PostgresServer(settings={**COMMON, **DURABLE}))
        now, before = (Side(root, server, closing) for root in (ROOT, tree_of(arguments.before)))
        verbs = arguments.only or list(COUNTS)
        for turn in track(range(-2, arguments.turns), "turns", console=console, disable=not sys.stdout.isatty()):
            for verb in verbs:
                for side in (now, before) if turn % 2 else (before, now):
                    side.turn(verb, COUNTS[verb], keep=turn >= 0)
    figures = Figures("before", BARS)
    for verb in verbs:
        name = {"load": "read"}.get(verb, verb)
        figures.record(f"{name}_vs_before", ratios(now.rates[verb], before.rates[verb]))
        figures.record(f"{verb}_per_s", now.rates[verb])
        if f"{verb}_cpu_vs_before" in BARS:
            figures.record(f"{verb}_cpu_vs_before", ratios(now.cpu[verb], before.cpu[verb]))
    writes = [verb for verb in ("alter", "create", "drop") if verb in verbs]
    if writes:
        turns = zip(*(ratios(now.rates[verb], before.rates[verb]) for verb in writes), strict=True)
        figures.record("write_vs_before", [median(turn) for turn in turns])
    figures.show(console)
    console.print(str(figures.write(keep=bool(arguments.only))), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
