"""A server that is killed, or stopped, while it runs a job: another runs the job again, and never beside the first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import metastore as ms
from metastore.jobs import submit
from tests.long import long_unless
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

TTL, LONG = 2.0, 60.0
"""After how many seconds another server runs a job again; and so many that a slow one is never taken for dead."""
ROOT = Path(__file__).resolve().parents[2]
BEATS = """
import os, sys, time
with open(sys.argv[1], "a") as log:
    while not os.path.exists(sys.argv[1] + ".enough"):
        log.write(f"{os.getpid()} {time.monotonic():.3f}\\n")
        log.flush()
        time.sleep(0.02)
"""


@contextmanager
def server(url: str, ttl: float = TTL) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.jobs.server_program", url, str(ttl)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@pytest.fixture
def store(url: str) -> Iterator[ms.Store]:
    with ms.open(url, principal="ann") as store:
        store.metalakes.create("lake")
        yield store
        assert list(store.verify()) == []


def beating(store: ms.Store, tmp_path: Path) -> tuple[ms.Job, Path]:
    """Submit a job that writes its process id and the time into a file, until there is a file ``beats.enough``."""
    store.job_templates.create("lake.beat", type="shell", executable=sys.executable, arguments=["-c", BEATS, "{{log}}"])
    log = tmp_path / "beats"
    return submit(store, "lake.beat", {"log": str(log)}), log


def runs(log: Path) -> list[tuple[float, float]]:
    """Return when each process began and when it last wrote, in the order of their beginnings."""
    spans: dict[str, tuple[float, float]] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        pid, at = line.split()
        spans[pid] = (spans.get(pid, (float(at), 0.0))[0], float(at))
    return sorted(spans.values())


@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("how", long_unless((signal.SIGKILL, signal.SIGSTOP), lambda how: how == signal.SIGSTOP))
def test_a_job_is_run_again_and_not_twice_at_once(url: str, store: ms.Store, tmp_path: Path, how: int) -> None:
    with server(url) as one:
        job, log = beating(store, tmp_path)
        assert wait_until(lambda: bool(runs(log)), 20.0)
        with server(url):
            os.kill(one.pid, how)
            begun = time.monotonic()
            assert wait_until(lambda: len(runs(log)) == 2, 20.0)
            waited = time.monotonic() - begun
            log.with_name("beats.enough").touch()
            assert wait_until(lambda: store.jobs.load(job).status == "succeeded", 30.0)
            if how == signal.SIGSTOP:
                one.send_signal(signal.SIGCONT)  # what it says now changes nothing
            ended = store.jobs.load(job)
    (_, first_ended), (second_began, _) = runs(log)
    assert first_ended < second_began, "both ran at once"
    assert (ended.attempts, ended.exit_code, ended.status) == (2, 0, "succeeded")
    assert waited < 5 * TTL
    assert store.jobs.load(job).version == ended.version


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
def test_each_of_many_jobs_runs_once_on_two_servers(url: str, store: ms.Store, tmp_path: Path) -> None:
    log = tmp_path / "said"
    store.job_templates.create(
        "lake.say", type="shell", executable="/bin/sh", arguments=["-c", f"echo {{{{word}}}} >> {log}"]
    )
    words = [f"w{i:02}" for i in range(20)]
    with server(url, LONG), server(url, LONG):
        jobs = [submit(store, "lake.say", {"word": word}) for word in words]
        assert wait_until(lambda: all(store.jobs.load(job).status == "succeeded" for job in jobs), 60.0)
    assert sorted(log.read_text().split()) == words
    assert {store.jobs.load(job).attempts for job in jobs} == {1}


def test_what_a_late_worker_says_changes_nothing(store: ms.Store) -> None:
    store.job_templates.create("lake.t", type="shell", executable="true")
    job = store.jobs.alter(submit(store, "lake.t"), ms.StartJob("seat", 1, 10))
    taken = store.jobs.alter(job, ms.StartJob("seat", 2, 20, dead_worker="seat", dead_token=1))
    with pytest.raises(ms.VersionConflict):
        store.jobs.alter(job, ms.FinishJob("seat", 1, 30, "failed"))
    with pytest.raises(ms.VersionConflict):
        store.jobs.alter(job, ms.StartJob("other", 7, 30, dead_worker="seat", dead_token=1))
    done = store.jobs.alter(taken, ms.FinishJob("seat", 2, 40, "succeeded", 0, "said"))
    assert (done.status, done.finished_at, done.output) == ("succeeded", 40, "said")
    assert store.jobs.cancel(done).status == "succeeded"
