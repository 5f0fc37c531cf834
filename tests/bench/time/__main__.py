"""Measure the past, the feed and Spark on the catalog: ``python -m tests.bench.time``.

What is compared takes turns, and each value is the median of its turns: a ratio holds on a machine that does other work
too. ``--full`` has the sizes that the names of the figures say; without it the large ones are five to twenty times
smaller. ``--on URL --prepare`` makes the lakes once, on a server that stays: measuring then takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from tests.bench.core.setting import Setting
from tests.bench.figures import Bar, Figures, reported
from tests.bench.time import feed, past, spark, writes
from tests.bench.time.lakes import Lakes
from tests.servers.postgres import ExternalPostgres

BARS = {
    "as_of_load_vs_load": Bar("<=", 1.5),
    "as_of_list_1000_vs_list": Bar("<=", 2.5),
    "as_of_list_in_10m_history_vs_100k": Bar("<=", 1.5),
    "diff_100_in_1m_vs_in_10k": Bar("<=", 2.5),
    "alter_vs_before": Bar(">=", 0.95),
    "create_vs_before": Bar(">=", 0.93),
    "alter_cpu_vs_before": reported,
    "create_cpu_vs_before": reported,
    "diff_rows_per_s": reported,
    "follow_latency_p99_ms": Bar("<=", 50),
    "feed_rows_per_s": Bar(">=", 50_000),
    "spark_snapshot_vs_copy": Bar(">=", 0.3),
    "spark_stream_rows_per_s": Bar(">=", 20_000),
    "spark_driver_rss_growth_mb": Bar("<=", 64),
    "spark_snapshot_rows_per_s": reported,
    "as_of_load_ms": reported,
    "as_of_load_by_id_ms": reported,
    "as_of_list_1000_ms": reported,
    "diff_100_ms": reported,
    "follow_latency_p50_ms": reported,
}
PARTS = ("past", "feed", "writes", "spark")


def main() -> int:
    """Print the table, write build/bench/time.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.time", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="10,000,000 rows of history, 1,000,000 entities: half an hour"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; the others' figures stay")
    parser.add_argument("--on", metavar="URL", help="measure on this PostgreSQL server, and use its lakes again")
    parser.add_argument("--prepare", action="store_true", help="only make the lakes on that server")
    given = parser.parse_args()
    if given.prepare and given.on is None:
        parser.error("--prepare needs --on")
    console = Console(width=None if sys.stdout.isatty() else 120)
    setting = Setting(Figures("time", BARS), console, not given.full)
    began = time.monotonic()
    parts = given.only or PARTS
    with setting.closing:
        lakes = Lakes(ExternalPostgres(given.on), kept=True) if given.on else Lakes(setting.durable, kept=False)
        if given.prepare:
            _prepare(lakes, parts, full=given.full)
            return 0
        if "past" in parts:
            past.measure(setting, lakes, full=given.full)
        if "feed" in parts:
            feed.measure(setting, lakes)
        if "writes" in parts:
            writes.measure(setting)
        if "spark" in parts:
            spark.measure(setting, lakes, full=given.full)
    setting.figures.show(console)
    path = setting.figures.write(keep=given.only is not None)
    console.print(f"{path}; {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _prepare(lakes: Lakes, parts: Sequence[str], *, full: bool) -> None:
    """Make the lakes of these parts, so that measuring them takes minutes."""
    if "past" in parts:
        past.lakes_of(lakes, full=full)
    if "spark" in parts:
        spark.lake_of(lakes, full=full)


if __name__ == "__main__":
    raise SystemExit(main())
