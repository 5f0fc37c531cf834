"""Every figure and its bar."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Bar, reported
from tests.bench.peers.contenders import CONTENDERS

__all__ = ["CLIENTS", "bars"]

CLIENTS = (1, 8, 32)
OF_A_CELL = ("per_s", "p50_ms", "p99_ms", "client_us", "round_trips", "failed")


def bars(clients: Sequence[int] = CLIENTS) -> dict[str, Bar]:
    """Return the figures of these numbers of clients. Of these the largest has the bars."""
    most = max(clients)
    return {
        f"mixed_{most}_vs_best_lock_peer": Bar(">=", 2),
        "round_trips_vs_best_lock_peer": Bar("<=", 1),
        "anomalies_ours": Bar("<=", 0),
        "anomalies_treelock_two_servers": Bar(">=", 1),
        **{f"mixed_{count}_vs_best_lock_peer": reported for count in clients if count != most},
        **{f"mixed_{count}_vs_best_lock_service": reported for count in clients},
        **{f"anomalies_{name}": reported for name in CONTENDERS if name not in ("ours", "treelock")},
        **{f"mixed_{count}_{name}_{what}": reported for count in clients for name in CONTENDERS for what in OF_A_CELL},
    }
