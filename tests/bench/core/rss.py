"""The memory of a process that creates a million tables from a generator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import metastore as ms
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, new_lake

__all__ = ["measure"]

ROOT = Path(__file__).resolve().parents[3]


def measure(setting: Setting) -> None:
    """Let a process of its own create them; it says how much its memory grew after the first tenth."""
    url = new_lake(setting.nosync, "bulk")
    count = 100_000 if setting.quick else 1_000_000
    command = [sys.executable, "-m", __name__, url, str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that creates {count} tables failed:\n{done.stderr}")
    for name, value in json.loads(done.stdout).items():
        setting.figures.record(name, [value])
    setting.nosync.drop_database(url)


def main(url: str, count: int) -> dict[str, float]:
    """Create ``count`` tables; the growth is of the highest figure seen after a tenth of them."""
    import time

    process, seen = psutil.Process(), list[float]()

    def rows() -> Iterator[dict[str, Any]]:
        for n in range(count):
            if n >= count // 10 and n % (count // 100) == 0:
                seen.append(process.memory_info().rss / 2**20)
            yield {"name": f"table_{n:07}", "columns": COLUMNS[:2]}

    start = time.monotonic()
    with ms.open(url, principal="bench") as store:
        store.tables.create_many(f"{CATALOG}.bulk", rows())
        seen.append(process.memory_info().rss / 2**20)
    rate = count / (time.monotonic() - start)
    return {"bulk_rss_growth_mb": max(seen) - seen[0], "bulk_rss_mb": max(seen), "bulk_rss_create_per_s": rate}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
