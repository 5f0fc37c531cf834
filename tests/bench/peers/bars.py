"""Every figure and its bar."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.combining.window import Arrangement
from tests.bench.figures import Bar, reported
from tests.bench.peers.contenders import CONTENDERS

__all__ = ["CLIENTS", "MAIN", "bars"]

CLIENTS = (1, 8, 32)
"""Processes with one thread each."""
MAIN = Arrangement("2x16", 2, 16)
"""The main arrangement, that of a server: its threads share one store, or have a connection each."""
OF_A_CELL = ("per_s", "p50_ms", "p99_ms", "client_us", "round_trips", "failed")


def bars(clients: Sequence[int] = CLIENTS) -> dict[str, Bar]:
    """Return the figures of the main arrangement and of these numbers of processes, of which the largest has a bar."""
    most, sizes = max(clients), (*clients, MAIN.name)
    return {
        f"mixed_{MAIN.name}_vs_best_lock_peer": Bar(">=", 1.8),
        f"mixed_{most}_vs_best_lock_peer": Bar(">=", 0.9),
        "round_trips_vs_best_lock_peer": Bar("<=", 1),
        "anomalies_ours": Bar("<=", 0),
        "anomalies_treelock_two_servers": Bar(">=", 1),
        **{f"mixed_{count}_vs_best_lock_peer": reported for count in clients if count != most},
        **{f"mixed_{size}_vs_best_lock_service": reported for size in sizes},
        **{f"anomalies_{name}": reported for name in CONTENDERS if name not in ("ours", "treelock")},
        **{f"mixed_{size}_{name}_{what}": reported for size in sizes for name in CONTENDERS for what in OF_A_CELL},
    }
