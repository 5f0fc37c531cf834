"""Round trips where nobody else writes: ours against a hand-written CAS, both with the version in hand."""

from __future__ import annotations

from statistics import median

from tests.bench.contention.cells import Cell
from tests.bench.contention.ground import rows_for
from tests.bench.contention.policies import opened
from tests.bench.core.round_trips import WARM, _Counter
from tests.bench.core.setting import Setting, new_lake
from tests.servers.proxy import PostgresProxy

__all__ = ["measure"]


def measure(setting: Setting) -> None:
    """Count how often each waits for the server to add one."""
    url = new_lake(setting.nosync, "s")
    counts = {}
    with PostgresProxy("127.0.0.1", setting.nosync.port) as proxy:
        counter = _Counter(setting, proxy)
        for policy in ("cas", "helping"):
            cell = Cell("postgres", "cold", "0ms", 1, policy)
            (row,) = rows_for(cell, url, prefix=policy)[1]
            writer = opened(cell, proxy.url_for(url))
            counts[policy] = counter.trips(lambda _, add=writer.add, row=row: add(row))[WARM:]  # type: ignore[misc]
            writer.close()
    extra = [ours - median(counts["cas"]) for ours in counts["helping"]]
    setting.figures.record("cold_round_trips_extra", extra)
