"""What a job runs: its template filled in, its files, its environment, its output, and how it is ended."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

import metastore as ms
from metastore.jobs import WorkerPool, submit
from metastore.jobs.command import environment, words
from metastore.jobs.folder import job_folder, sweep
from metastore.jobs.process import Process
from metastore.jobs.run import _finish as finish
from metastore.kinds.job.run import ENDED, MAX_OUTPUT
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

Act = Callable[[ms.Store, ms.Job], object]
FOLDER = Path(ms.__file__).parent / "jobs" / "folder.py"
GUARD = Path(ms.__file__).parent / "jobs" / "guard.py"


@pytest.fixture
def store() -> Iterator[ms.Store]:
    with ms.open("memory://", principal="ann") as store:
        store.metalakes.create("lake")
        with WorkerPool(store, workers=2):
            yield store


def run(store: ms.Store, executable: str, *arguments: str, **fields: object) -> ms.Job:
    store.job_templates.create("lake.t", type="shell", executable=executable, arguments=arguments, **fields)  # type: ignore[arg-type]
    job = submit(store, "lake.t", {"a": "one", "b": "two"})
    assert wait_until(lambda: store.jobs.load(job).status in ENDED, 20.0)
    return store.jobs.load(job)


def test_placeholders_are_filled_in_everywhere_and_unknown_ones_stay(store: ms.Store) -> None:
    done = run(
        *(store, "/bin/sh", "-c", "echo {{a}} {{a}}{{b}} {{c}} $X_two; echo oops >&2; exit 3"),
        environments={"X_{{b}}": "{{a}}!"},
    )
    assert (done.status, done.exit_code) == ("failed", 3)
    assert done.output == "one onetwo {{c}} one!\noops\n"
    assert done.conf == {"a": "one", "b": "two"}


def test_the_servers_own_variables_stay_with_it(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_URL", "postgresql://u:secret@h/d")
    assert "secret" not in run(store, "/usr/bin/env").output


def test_files_are_brought_into_its_folder(store: ms.Store, tmp_path: Path) -> None:
    script = tmp_path / "a script.sh"
    script.write_text("#!/bin/sh\n. ./helper.sh\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "helper.sh").write_text("echo helped\n")
    done = run(store, script.as_uri(), scripts=[(tmp_path / "helper.sh").as_uri()])
    assert (done.status, done.output) == ("succeeded", "helped\n")


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_two_files_of_one_name_do_not_replace_each_other(scheme: str, tmp_path: Path) -> None:
    folder, script = tmp_path / "folder", tmp_path / "run.sh"
    folder.mkdir()
    script.write_text("mine")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.sh").write_text("another")
    place = {"file": f"file://{tmp_path}/b/run.sh", "http": "http://127.0.0.1:9/run.sh"}[scheme]
    with pytest.raises(ms.InvalidArgument, match=r"two files of the job are called run\.sh"):
        words("shell", {"executable": place, "scripts": [f"file://{script}"]}, folder)
    assert script.read_text() == "mine"
    assert words("shell", {"executable": str(script), "scripts": [f"file://{script}"]}, folder) == [str(script)]


@pytest.mark.parametrize("place", ["hdfs://host/x.sh", "file:///no/such/file", "no-such-command"])
def test_what_cannot_be_run_fails_and_says_why(store: ms.Store, place: str) -> None:
    done = run(store, place)
    assert done.status == "failed"
    assert done.output


def test_the_end_of_a_long_output_is_kept(store: ms.Store) -> None:
    done = run(store, sys.executable, "-c", "print('x' * 200_000 + 'the end')")
    assert len(done.output) <= MAX_OUTPUT
    assert done.output.endswith("the end\n")


def test_an_output_takes_the_room_that_its_command_leaves(store: ms.Store) -> None:
    """The end of the job could not be written: it held its worker for ever, and the end of its server."""
    variables = {f"V{n}": "x" * 100_000 for n in range(8)}
    done = run(store, "/bin/sh", "-c", "yes | tr 'y\\n' '\\1\\2' | head -c 65536; echo end", environments=variables)
    assert done.status == "succeeded"
    assert done.output.endswith("end\n")
    assert len(done.output) > 1000


def test_a_long_output_gives_its_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk is not filled by what nobody reads; what is kept is the end all the same."""
    monkeypatch.setattr("metastore.jobs.process._MOST_LOG", 1 << 20)
    program = "import sys; sys.stdout.write('x' * (8 << 20) + 'the end')"
    process = Process([sys.executable, "-c", program], dict(os.environ), tmp_path)
    try:
        process.allow(30)
        assert process.wait(30)
        log = process._log.fileno()
        full = os.fstat(log)
        process.trim()
        trimmed = os.fstat(log)
        assert (full.st_size, trimmed.st_size) == (8 << 20 | 7, 8 << 20 | 7)
        assert trimmed.st_blocks * 512 < 2 << 20 < full.st_blocks * 512
        output = process.output()
        assert (len(output), output[-9:]) == (MAX_OUTPUT, "xxthe end")
    finally:
        process.close()


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_fetch_that_goes_on_and_on_ends_with_its_job(how: str) -> None:
    """Its server sends a byte now and then."""
    asked, over = threading.Event(), threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            asked.set()
            with suppress(OSError):
                while not over.wait(0.02):
                    self.wfile.write(b"x")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server, ms.open("memory://", principal="ann") as store:
        server.daemon_threads = True
        store.metalakes.create("lake")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store.job_templates.create(
            ("lake", how), type="shell", executable=f"http://127.0.0.1:{server.server_port}/x.sh"
        )
        with WorkerPool(store) as pool:
            job = submit(store, ("lake", how))
            assert asked.wait(20)
            try:
                if how == "cancel":
                    store.jobs.alter(job, ms.CancelJob(1))
                    assert wait_until(lambda: store.jobs.load(job).status == "cancelled", 20)
                else:
                    closing = threading.Thread(target=pool.close)
                    closing.start()
                    closing.join(20)
                    assert not closing.is_alive()
                    assert store.jobs.load(job).status == "started"
            finally:
                over.set()
        server.shutdown()


def test_folders_of_a_server_that_was_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = (
        f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
        f"import runpy; job_folder = runpy.run_path({str(FOLDER)!r})['job_folder']\n"
        "with job_folder() as folder:\n"
        "    (folder / 'large').write_text('x')\n"
        "    print(folder, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        folder = Path(other.stdout.readline().strip())
        link = tmp_path / "metastore-job-link"
        link.symlink_to(tmp_path / "kept", target_is_directory=True)
        (tmp_path / "kept").mkdir()
        with job_folder() as own:
            sweep()
            assert folder.exists(), "its server runs"
            other.kill()
            other.wait()
            sweep()
            assert not folder.exists()
            assert own.exists()
        assert not own.exists()
        assert (tmp_path / "kept").exists()


UNTIDY = {
    "cleans its folder": "rm -rf ./* ./.[!.]*",
    "removes its folder": 'rm -rf "$PWD"',
    "puts a FIFO there": "rm -f output.log; mkfifo output.log",
    "puts a folder there": "rm -f output.log; mkdir output.log",
    "puts a link there": "ln -sf /etc/hostname output.log",
    "shuts its folder": 'chmod 000 "$PWD"',
    "truncates its output": "truncate -s 0 /proc/self/fd/1",
}


@pytest.mark.parametrize("does", UNTIDY)
def test_a_job_may_do_in_its_folder_what_it_likes(store: ms.Store, does: str) -> None:
    done = run(store, "/bin/sh", "-c", f"{UNTIDY[does]} && echo done")
    assert (done.status, done.attempts, done.output) == ("succeeded", 1, "done\n")


def test_what_a_job_leaves_behind_holds_no_worker(store: ms.Store, tmp_path: Path) -> None:
    """It has the guard's own output open, and does not end."""
    pid = tmp_path / "pid"
    script = f"guard=$PPID; setsid sleep 60 > /proc/$guard/fd/1 & echo $! > {pid}; echo done"
    try:
        done = run(store, "/bin/sh", "-c", script)
        assert (done.status, done.output) == ("succeeded", "done\n")
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


AWAY: dict[str, tuple[Act, Act]] = {
    "dropped": (lambda s, _: s.metalakes.drop("lake", cascade=True), lambda s, _: s.metalakes.restore("lake")),
    "disabled": (lambda s, _: s.metalakes.disable("lake"), lambda s, _: s.metalakes.enable("lake")),
    "the job dropped": (lambda s, job: s.jobs.drop(job), lambda s, job: s.jobs.restore(job.path)),
    "dropped in steps": (lambda s, job: s.jobs.begin_drop(job, ttl=0.01), lambda s, _: rolled_back(s)),
}


def rolled_back(store: ms.Store) -> None:
    (pending,) = store.drops.pending()
    pending.roll_back()


@pytest.mark.parametrize("how", AWAY)
def test_a_job_that_is_away_ends_and_runs_again_when_it_is_back(store: ms.Store, tmp_path: Path, how: str) -> None:
    """It holds no worker meanwhile. A template that is dropped changes nothing: a job has a command of its own."""
    away, back = AWAY[how]
    pid, enough = tmp_path / "pid", tmp_path / "enough"
    script = f"echo $$ > {pid}.new; mv {pid}.new {pid}; while [ ! -e {enough} ]; do sleep 0.05; done"
    store.job_templates.create("lake.t", type="shell", executable="/bin/sh", arguments=["-c", script])
    job = submit(store, "lake.t")
    assert wait_until(pid.exists, 20.0)
    store.job_templates.drop("lake.t")
    away(store, job)
    assert wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), 20.0)
    enough.touch()
    back(store, job)
    assert wait_until(lambda: store.jobs.load(job).status in ENDED, 20.0)
    assert (store.jobs.load(job).status, store.jobs.load(job).attempts) == ("succeeded", 2)


def test_the_end_of_a_job_that_is_being_dropped_in_steps_holds_no_worker() -> None:
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")
        seat = store.leases.acquire("job-worker-0", ttl=3.0)
        job = store.jobs.alter(submit(store, "lake.t"), ms.StartJob(seat.name, seat.token or 0, 1))
        store.metalakes.begin_drop("lake")
        finish(store, job, seat, "succeeded", 0, "")
        assert not seat.is_over()


def test_a_job_that_kills_its_servers_is_not_run_for_ever() -> None:
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")
        job = submit(store, "lake.t")
        for token in range(1, 6):
            before: dict[str, Any] = {} if token == 1 else {"dead_worker": "dead", "dead_token": token - 1}
            store.jobs.alter(job, ms.StartJob("dead", token, token, **before))
        with WorkerPool(store):
            assert wait_until(lambda: store.jobs.load(job).status in ENDED, 20.0)
        done = store.jobs.load(job)
        assert (done.status, done.attempts, done.exit_code) == ("failed", 6, None)
        assert "died 5 times" in done.output


def test_what_runs_in_another_system_is_left_there(store: ms.Store) -> None:
    job = store.jobs.create("lake.j", template="t", execution_id="7", command={"executable": "true"})
    assert run(store, "true").status == "succeeded"
    assert store.jobs.load(job).status == "queued"


def test_a_command_is_killed_when_its_time_is_over_or_its_server_is_gone() -> None:
    for said, closes in (("until 0\n", False), ("", True), ("stop 0\n", False)):
        with subprocess.Popen(
            [sys.executable, str(GUARD), "--", "sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as guard:
            assert guard.stdin is not None
            assert guard.stdout is not None
            guard.stdin.write(said)
            guard.stdin.flush()
            if closes:
                guard.stdin.close()
            assert guard.stdout.read() in ("exit 137\n", "exit 143\n")


def test_the_command_dies_with_its_guard(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = f"echo $$ > {pid}; exec sleep 60"
    with subprocess.Popen([sys.executable, str(GUARD), "--", "sh", "-c", command], stdin=subprocess.PIPE) as guard:
        assert wait_until(lambda: pid.exists() and bool(pid.read_text().strip()), 10.0)
        guard.kill()
    assert wait_until(lambda: not _runs(int(pid.read_text())), 10.0)


@pytest.mark.parametrize("ends", [Process.stop, Process.kill])
def test_a_command_that_stops_its_guard_ends(tmp_path: Path, ends: Callable[[Process], None]) -> None:
    """Nothing ended it, no cancel and no lost lease; and the server waited for it for ever when it was to stop."""
    process = Process(["sh", "-c", "kill -STOP $PPID; exec sleep 60"], environment({}), tmp_path)
    guard = psutil.Process(process._guard.pid)
    assert wait_until(lambda: guard.status() == psutil.STATUS_STOPPED, 20.0)
    ends(process)
    assert process.wait(20.0)
    process.close()


def test_a_stopped_guard_ends_its_command_when_its_server_is_killed(tmp_path: Path) -> None:
    """Nothing continued the guard: the command ran on, beside its second run on another server."""
    pid = tmp_path / "pid"
    words = ["sh", "-c", f"echo $$ > {pid}; kill -STOP $PPID; exec sleep 60"]
    program = f"import subprocess; subprocess.Popen({[sys.executable, str(GUARD), '--', *words]}, stdin=-1).wait()"
    with subprocess.Popen([sys.executable, "-c", program]) as server:
        children = psutil.Process(server.pid).children
        assert wait_until(lambda: [one.status() for one in children()] == [psutil.STATUS_STOPPED], 20.0)
        server.kill()
    assert wait_until(lambda: not _runs(int(pid.read_text())), 10.0)


def test_a_guard_that_stays_stopped_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may stop its guard again and again, and be faster than each SIGCONT."""
    monkeypatch.setattr("metastore.jobs.process._GRACE", 0.5)
    process, pid = Process(["sh", "-c", "echo $$ > pid; exec sleep 60"], environment({}), tmp_path), tmp_path / "pid"
    assert wait_until(lambda: pid.exists() and bool(pid.read_text().strip()), 20.0)
    os.kill(process._guard.pid, signal.SIGSTOP)
    send = process._guard.send_signal
    monkeypatch.setattr(process._guard, "send_signal", lambda n: None if n == signal.SIGCONT else send(n))
    process.close()
    assert wait_until(lambda: not _runs(int(pid.read_text())), 10.0)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_spark_job_is_handed_to_spark_submit(tmp_path: Path) -> None:
    command = {"executable": "s3://b/job.py", "arguments": ["x"], "class_name": "C", "jars": ["a.jar", "b.jar"]}
    found = words("spark", {**command, "configs": {"spark.master": "local[1]"}}, tmp_path)
    assert found[0].endswith("spark-submit")
    assert found[1:] == [
        *("--class", "C", "--jars", "a.jar,b.jar", "--conf", "spark.master=local[1]", "s3://b/job.py", "x")
    ]


@pytest.mark.parametrize("conf", [{"a": 1}, {1: "a"}, ["a"], "a"])
def test_a_wrong_configuration_is_refused(store: ms.Store, conf: object) -> None:
    store.job_templates.create("lake.t", type="shell", executable="true")
    with pytest.raises(ms.InvalidArgument):
        submit(store, "lake.t", conf)  # type: ignore[arg-type]
    assert list(store.jobs.list("lake")) == []


def test_no_job_of_a_template_that_is_not_there(store: ms.Store) -> None:
    with pytest.raises(ms.EntityNotFound):
        submit(store, "lake.none")


NESTS = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"


def test_a_folder_that_a_job_nested_deeply_is_removed() -> None:
    """Its removal ended in RecursionError, and so did the start of the next server, which found the folder."""
    with job_folder() as folder:
        subprocess.run([sys.executable, "-c", NESTS], cwd=folder, check=True)
    assert not folder.exists()
