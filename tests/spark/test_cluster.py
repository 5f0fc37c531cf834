"""The data source on clusters: executors in processes of their own, which are killed in the middle of their work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from tests.servers.spark_standalone import SparkCluster
from tests.spark.cluster_program import TABLES, WRITTEN

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3000)]
ROOT = Path(ms.__file__).parents[1]


def check(java: Path, master: str, url: str, folder: Path) -> None:
    """Run the program on a master: each executor that died had work, and all of the work is done once."""
    environment = {**os.environ, "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    environment["PYSPARK_PYTHON"] = sys.executable
    command = [sys.executable, "-m", "tests.spark.cluster_program", master, url, str(folder)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["read"] == {"killed": True, "rows": TABLES + 3, "distinct": TABLES + 3}
    assert found["stream"] == {"killed": True, "exactly": True}
    assert 0 < found["write"]["before"] < WRITTEN  # some chunks were committed by the task that was killed
    assert found["write"] == {**found["write"], "rows": WRITTEN, "versions": [1], "broken": []}
    assert found["page"] == []


@pytest.mark.postgres
def test_a_standalone_master_with_two_workers(java: Path, postgres_url: str, tmp_path: Path) -> None:
    with SparkCluster(java) as cluster:
        check(java, cluster.url, postgres_url, tmp_path)


def test_a_local_cluster(java: Path, sqlite_url: str, tmp_path: Path) -> None:
    check(java, "local-cluster[2,1,1024]", sqlite_url, tmp_path)
