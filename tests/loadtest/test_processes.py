"""A load test as a process of its own: interrupted, on a cluster of its own, with clients that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

import metastore as ms
from tests.servers.process import wait_until
from tests.servers.spark_standalone import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(ms.__file__).parents[1]
DAEMON = "metastore.loadtest.worker_daemon"
PATIENCE = 180.0


@contextmanager
def loadtest(url: str, out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a load test in a session of its own, and wait until its clients write."""
    command = [sys.executable, "-m", "metastore", "--url", url, "loadtest", "--seconds", "600", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        [*command, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert wait_until(lambda: process.poll() is not None or written(out) > 20_000, PATIENCE)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def written(out: Path) -> int:
    """How many bytes the clients have noted so far."""
    return sum(path.stat().st_size for path in out.glob("log/*"))


def partial(process: subprocess.Popen[str], out: Path) -> tuple[str, str]:
    """Return what it printed; what it leaves is whole, and says that it was interrupted."""
    text, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "metastore: interrupted\n"), text
    assert "It was interrupted: the figures are those up to then." in text
    assert "No contradiction" in text
    assert json.loads((out / "run.json").read_text())["state"] == "interrupted"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["runs"][0]["operations"] == pq.read_table(out / "operations").num_rows > 0
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    return text, errors


@pytest.mark.long
def test_ctrl_c_leaves_a_partial_result_and_no_process(java: Path, sqlite_url: str, tmp_path: Path) -> None:
    """As a terminal sends it: to the whole group. No operation is cut off."""
    out = tmp_path / "out"
    with loadtest(sqlite_url, out, "--scenario", "hot-table", "--clients", "2") as process:
        started = psutil.Process(process.pid).children(recursive=True)
        assert len([one for one in started if _is_daemon(one)]) == 3  # the daemon, and two clients
        os.killpg(process.pid, signal.SIGINT)
        partial(process, out)
        assert wait_until(lambda: not any(map(_is_alive, started)), 10)
    outcomes = pq.read_table(out / "operations")["outcome"].to_pylist()
    assert "open" not in outcomes
    assert not {"unknown", "conflicted"} & set(outcomes)


@pytest.mark.long
def test_two_workers_and_a_client_that_is_killed(java: Path, postgres_url: str, tmp_path: Path) -> None:
    """A killed client goes on as a new one; SIGTERM to the group, as timeout(1) sends it, ends it all in order."""
    out = tmp_path / "out"
    with SparkCluster(java) as cluster:
        words = ("--scenario", "rename-storm", "--clients", "4", "--master", cluster.url)
        with loadtest(postgres_url, out, *words) as process:
            mine = [child for pid in cluster.pids() for child in psutil.Process(pid).children(recursive=True)]
            clients = [one for one in mine if _is_client(one)]
            assert len(clients) == 4
            assert len({one.ppid() for one in clients}) == 2  # one daemon in each of two executors
            clients[0].kill()
            assert wait_until(lambda: any(path.stat().st_size for path in out.glob("log/*.1.jsonl")), PATIENCE)
            started = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGTERM)
            partial(process, out)
            assert wait_until(lambda: not any(map(_is_alive, [*started, *mine])), 20)
    table = pq.read_table(out / "operations")
    assert len(set(table["client"].to_pylist())) == 5
    assert table["outcome"].to_pylist().count("open") <= 1


def _is_client(process: psutil.Process) -> bool:
    """Whether it was forked by the daemon."""
    parent = process.parent()
    return parent is not None and _is_daemon(process) and _is_daemon(parent)


def _is_daemon(process: psutil.Process) -> bool:
    """Whether it is the daemon, or was forked by it."""
    try:
        return DAEMON in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
