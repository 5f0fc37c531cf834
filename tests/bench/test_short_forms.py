"""The benchmarks of the core still run: short forms, whose figures mean nothing and are thrown away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHORT = {
    "core": ("--quick", "--only", "round_trips", "--only", "same_sql", "--only", "siblings", "--only", "imports"),
    "core.rest": ("--quick", "--only", "sqlite", "--only", "bulk"),
}
"""Those that were seen to end in a minute or two. ``leases`` and ``peers`` have tests of their own."""

pytestmark = [pytest.mark.long, pytest.mark.postgres, pytest.mark.xdist_group("benchmarks")]


@pytest.mark.parametrize("name", SHORT)
def test_it_runs(name: str, tmp_path: Path) -> None:
    """It writes its figures, whatever they are."""
    environment = {**os.environ, "METASTORE_BENCH_FOLDER": str(tmp_path)}
    command = [sys.executable, "-m", f"tests.bench.{name.removesuffix('.rest')}", *SHORT[name]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert list(tmp_path.glob("*.json"))
