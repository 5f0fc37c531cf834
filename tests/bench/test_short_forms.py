"""Every benchmark still runs: its short form, whose figures mean nothing and are thrown away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.setup.java import find_java

ROOT = Path(__file__).resolve().parents[2]
SHORT = {
    "core": ("--quick", "--only", "round_trips", "--only", "same_sql", "--only", "siblings", "--only", "imports"),
    "core.rest": ("--quick", "--only", "sqlite", "--only", "bulk"),
    "cache": ("--quick",),
    "combining": ("--short", "--length", "0.3"),
    "contention": ("--quick",),
    "console": ("--quick", "--tables", "500"),
    "governance": ("--quick",),
    "gravitino": ("--quick",),
    "iceberg": ("--seconds", "1", "--tables", "50"),
    "services": ("--quick",),
    "time": ("--only", "past"),
}
"""What runs in a minute or two. ``leases`` and ``peers`` have tests of their own; ``crawl``, ``before`` take longer."""

pytestmark = [pytest.mark.long, pytest.mark.postgres, pytest.mark.xdist_group("benchmarks")]


@pytest.mark.parametrize("name", SHORT)
def test_it_runs(name: str, tmp_path: Path) -> None:
    """It writes its figures, whatever they are."""
    environment = {**os.environ, "METASTORE_BENCH_FOLDER": str(tmp_path)}
    if (java := find_java()) is not None:
        environment["JAVA_HOME"] = str(java)
    command = [sys.executable, "-m", f"tests.bench.{name.removesuffix('.rest')}", *SHORT[name]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert list(tmp_path.glob("*.json"))
