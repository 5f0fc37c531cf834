"""Measure creates, loads and commits over REST beside Iceberg's REST fixture; write build/bench/iceberg-peers.json."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from pathlib import Path

from rich.console import Console

import metastore as ms
from tests.bench.figures import Bar, Figures, reported
from tests.bench.iceberg.peers.clients import Client, Done, together
from tests.bench.iceberg.peers.servers import CLIENTS, fixture, metastore
from tests.servers.postgres import PostgresServer

CONTENDERS: dict[str, Callable[[str, Path], AbstractContextManager[str]]] = {
    "metastore": metastore,
    "fixture": fixture,
}
WORKS = ("create", "load", "own", "hot")
_NAMES = count()


def bars() -> dict[str, Bar]:
    """Return every figure and its bar."""
    found = {f"rest_{work}_vs_best_peer": reported for work in WORKS}
    found |= {"rest_own_vs_best_peer": Bar(">=", 1), "rest_hot_vs_best_peer": Bar(">=", 3)}
    for contender in CONTENDERS:
        found |= {f"{contender}_{work}_per_s": reported for work in WORKS}
        found |= {f"{contender}_hot_failed_share": reported, f"{contender}_hot_lost": reported}
    return found | {"metastore_hot_lost": Bar("<=", 0), "load_of_the_machine": reported}


class Contender:
    """One server, and what it did in each turn."""

    def __init__(self, address: str) -> None:
        self._clients = [Client(address) for _ in range(CLIENTS)]
        self.failed_shares: list[float] = []
        self.lost: list[float] = []
        self._clients[0].namespace()

    def rate(self, work: str, seconds: float) -> float:
        """Return how many calls are acknowledged in a second."""
        done: list[Done] = getattr(self, f"_{work}")(seconds)
        return sum(one.acknowledged / one.seconds for one in done)

    def _create(self, seconds: float) -> list[Done]:
        return together(self._clients, lambda _, client, __: client.create(f"t{next(_NAMES)}"), seconds)

    def _load(self, seconds: float) -> list[Done]:
        name, _ = self._table()
        return together(self._clients, lambda _, client, __: client.read(name), seconds)

    def _own(self, seconds: float) -> list[Done]:
        tables = [self._table() for _ in self._clients]
        return together(self._clients, lambda place, client, n: client.put(*tables[place], "n", str(n)), seconds)

    def _hot(self, seconds: float) -> list[Done]:
        table = self._table()
        done = together(self._clients, lambda place, client, n: client.put(*table, f"n{place}", str(n)), seconds)
        has = self._clients[0].load(table[0])["properties"]
        wanted = {f"n{k}": str(one.acknowledged - 1) for k, one in enumerate(done) if one.acknowledged}
        self.lost.append(sum(has.get(key) != value for key, value in wanted.items()))
        failed, acknowledged = sum(one.failed for one in done), sum(one.acknowledged for one in done)
        self.failed_shares.append(failed / max(1, failed + acknowledged))
        return done

    def _table(self) -> tuple[str, str]:
        name = f"t{next(_NAMES)}"
        self._clients[0].create(name)
        return name, self._clients[0].load(name)["table-uuid"]


def measure(figures: Figures, contenders: dict[str, Contender], turns: int, seconds: float) -> None:
    """Let the servers do each work in turns; a first turn that is not counted warms them up."""
    for work in WORKS:
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(turns + 1):
            for name, contender in contenders.items():
                rate = contender.rate(work, seconds)
                if turn:
                    rates[name].append(rate)
        for name, values in rates.items():
            figures.record(f"{name}_{work}_per_s", values)
        best = [max(rates[name][turn] for name in rates if name != "metastore") for turn in range(turns)]
        ratios = [ours / max(peer, 0.01) for ours, peer in zip(rates["metastore"], best, strict=True)]
        figures.record(f"rest_{work}_vs_best_peer", ratios)
    for name, contender in contenders.items():
        figures.record(f"{name}_hot_failed_share", contender.failed_shares)
        figures.record(f"{name}_hot_lost", contender.lost)


def main() -> None:
    """Run what the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.iceberg.peers", description=__doc__)
    parser.add_argument("--turns", type=int, default=3, help="how often each work is measured")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each work is measured")
    options = parser.parse_args()
    figures = Figures("iceberg-peers", bars())
    figures.record("load_of_the_machine", [os.getloadavg()[0] / (os.cpu_count() or 1)])
    with tempfile.TemporaryDirectory() as folder, PostgresServer(in_memory=True) as postgres, ExitStack() as stack:
        contenders = {}
        for name, start in CONTENDERS.items():
            url = postgres.create_database()
            if name == "metastore":
                ms.migrate(url)
            place = Path(folder, name)
            place.mkdir()
            contenders[name] = Contender(stack.enter_context(start(url, place)))
        measure(figures, contenders, options.turns, options.seconds)
    figures.show(Console())
    print(figures.write(keep=False))


if __name__ == "__main__":
    main()
