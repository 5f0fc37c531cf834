"""``metastore lease run``: a command that ends with its lease. Real processes, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.cli import app
from tests.cli.lease_programs import is_alive, lines, owner_of, running, state_of, words
from tests.cli.test_cli import call, environment
from tests.long import long_unless
from tests.servers.process import wait_until

pytestmark = [pytest.mark.each_run_on("sqlite"), pytest.mark.one_in(3)]  # a command knows nothing of the database

ODD = "a.b `c` Ωmega [red]x[/red]"
HELD, LOST, CANNOT_RUN, NOT_FOUND = 75, 124, 126, 127

SHOWS = 'printf "%s|%s|%s" "$METASTORE_LEASE" "$METASTORE_LEASE_TOKEN" "${METASTORE_URL-none}"'
COMMITS = """
import os, sys
import metastore as ms

with ms.open() as store:
    lease = store.leases.join(os.environ["METASTORE_LEASE"], int(os.environ["METASTORE_LEASE_TOKEN"]))
    store.metalakes.create("lake", lease=lease)
"""
COMMITS_ELSEWHERE = """
import os
import metastore as ms

name, token = os.environ["METASTORE_LEASE"], int(os.environ["METASTORE_LEASE_TOKEN"])
with ms.open() as store:
    lease = ms.ObjectStoreLeases(os.environ["METASTORE_LEASES"], store=store).join(name, token)
    print(store.metalakes.create("lake", lease=lease).path)
"""
OUTLIVES = """
import os, pathlib, signal, sys
import metastore as ms

signal.signal(signal.SIGTERM, lambda *_: None)
with ms.open() as store:
    lease = store.leases.join(os.environ["METASTORE_LEASE"], int(os.environ["METASTORE_LEASE_TOKEN"]))
    print("joined", flush=True)
    signal.pause()
    try:
        store.metalakes.create("late", lease=lease)
    except ms.LeaseLost:
        pathlib.Path(sys.argv[1]).write_text("LeaseLost\\n")
"""


def run(url: str, name: str, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = options.pop("env", None) or environment()
    pipes: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "timeout": 60}
    return subprocess.run(words(url, name, *command, **options), check=False, env=env, **pipes)


def run_here(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run it in this process, where nothing is to be started."""
    code = app.run(arguments)
    return (code, *capfd.readouterr())


def actions(url: str, name: str) -> list[tuple[str, int]]:
    with ms.open(url) as store:
        return [(event.action, event.token) for event in store.leases.audit(name)]


def one_line(text: str, *parts: str) -> None:
    assert text.startswith("metastore: "), text
    assert text.count("\n") == 1, text
    for part in parts:
        assert part in text


# --- the command has what it needs, and its exit code is the whole's


def test_the_command_is_told_its_lease(url: str) -> None:
    done = run(url, ODD, "sh", "-c", SHOWS, owner="the nightly job")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ODD}|1|{url}", "")
    assert actions(url, ODD) == [("acquire", 1), ("release", 2)]
    assert run(url, ODD, "sh", "-c", SHOWS).stdout == f"{ODD}|3|{url}"
    with ms.open(url) as store:
        assert next(store.leases.audit(ODD)).owner == "the nightly job"


def test_the_url_is_handed_down_as_it_came(sqlite_url: str, tmp_path: Path) -> None:
    command = ("lease", "run", "x", "--", "sh", "-c", SHOWS)
    assert call(None, *command, cwd=tmp_path).stdout == "x|1|none"
    assert call(None, *command, cwd=tmp_path, env=environment(METASTORE_URL=sqlite_url)).stdout.endswith(sqlite_url)
    other = environment(METASTORE_URL="sqlite:///nowhere/at/all.db")
    assert call(sqlite_url, *command, cwd=tmp_path, env=other).stdout.endswith(f"|{sqlite_url}")


def test_the_command_commits_under_the_lease(url: str) -> None:
    done = run(url, "nightly", sys.executable, "-c", COMMITS)
    assert (done.returncode, done.stderr) == (0, "")
    assert actions(url, "nightly") == [("acquire", 1), ("commit", 1), ("release", 2)]
    with ms.open(url) as store:
        assert store.metalakes.exists("lake")


@pytest.mark.parametrize(
    ("script", "code"),
    long_unless(
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill $$", 143)],
        lambda one: one[1] in (7, 137),
    ),
)
def test_exit_codes(sqlite_url: str, script: str, code: int) -> None:
    done = run(sqlite_url, "x", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (code, "")
    assert actions(sqlite_url, "x") == [("acquire", 1), ("release", 2)]


def test_words_are_handed_down_one_by_one(sqlite_url: str) -> None:
    given = ["a b", "", "'\"", "$HOME `id`", "--", "--ttl", "two\nlines", "é[red]", "*"]
    done = run(sqlite_url, "x", sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *given)
    assert json.loads(done.stdout) == given
    nested = run(sqlite_url, "outer", *words(sqlite_url, "inner", "sh", "-c", SHOWS))
    assert nested.stdout == f"inner|1|{sqlite_url}"


def test_the_commands_own_streams(sqlite_url: str) -> None:
    pipes: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "timeout": 60}
    command = words(sqlite_url, "x", "sh", "-c", "cat; echo problem >&2")
    done = subprocess.run(command, check=False, input="through", env=environment(), **pipes)
    assert (done.stdout, done.stderr) == ("through", "problem\n")


@pytest.mark.parametrize("where", ["path", "slash", "folder", "not executable", "interpreter", "empty"])
def test_what_cannot_be_run(sqlite_url: str, tmp_path: Path, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    plain, script = tmp_path / "plain", tmp_path / "script"
    plain.write_text("echo")
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    command, code = {
        "path": ("no-such-command", NOT_FOUND),
        "slash": ("/no/such/command", NOT_FOUND),
        "folder": (str(tmp_path), CANNOT_RUN),
        "not executable": (str(plain), CANNOT_RUN),
        "interpreter": (str(script), NOT_FOUND),
        "empty": ("", NOT_FOUND),
    }[where]
    found, out, errors = run_here(capfd, *words(sqlite_url, "x", command)[3:])
    assert (found, out) == (code, "")
    one_line(errors, repr(command))
    kept = [("acquire", 1), ("release", 2)] if where == "interpreter" else []  # that is known when it is tried
    assert actions(sqlite_url, "x") == kept


def test_bad_options(sqlite_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    for name, options, part in (
        ("x", {"ttl": "nan"}, "a ttl"),
        ("x", {"ttl": "-1"}, "a ttl"),
        ("x", {"timeout": "-1"}, "a timeout"),
        ("x", {"ttl": 3, "renew_every": 1}, "less than a third"),
        ("x", {"grace": "0"}, "a grace period"),
        ("x", {"owner": "\n"}, "an owner"),
        ("", {}, "a lease needs a name"),
        ("a\nb", {}, "control character"),
    ):
        code, out, errors = run_here(capfd, *words(sqlite_url, name, "echo", "written", **options)[3:])
        assert (code, out) == (1, "")
        one_line(errors, part)
    code, _, errors = run_here(capfd, "--url", sqlite_url, "lease", "run", "x")
    assert code == 1
    one_line(errors, "COMMAND")


# --- somebody else has it


def test_a_lease_that_is_held(url: str) -> None:
    with ms.open(url) as store, store.leases.acquire(ODD, owner="[red]somebody[/red]"):
        for timeout in (0, 0.3):
            done = run(url, ODD, "echo", "written", timeout=timeout)
            assert (done.returncode, done.stdout) == (HELD, "")
            one_line(done.stderr, "held by [red]somebody[/red] until ", "--timeout")
        assert next(store.leases.list()).waiting == 0
    assert actions(url, ODD) == [("acquire", 1), ("release", 2)]


def test_waiting_for_a_lease(url: str) -> None:
    with ms.open(url) as store:
        lease = store.leases.acquire("x", renew_every=1)
        with running(url, "x", "sh", "-c", SHOWS, timeout=60) as waits:
            assert wait_until(lambda: next(store.leases.list()).waiting == 1, 20)
            lease.release()
            assert waits.communicate(timeout=20)[0] == f"x|3|{url}"
            assert waits.returncode == 0


@pytest.mark.parametrize(
    ("number", "code"),
    long_unless([(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)], lambda one: one[1] == 143),
)
def test_a_signal_ends_the_waiting(sqlite_url: str, number: signal.Signals, code: int) -> None:
    with ms.open(sqlite_url) as store, store.leases.acquire("x"):
        with running(sqlite_url, "x", "echo", "written", timeout=60) as waits:
            assert wait_until(lambda: next(store.leases.list()).waiting == 1, 20)
            waits.send_signal(number)
            out, errors = waits.communicate(timeout=20)
        assert (waits.returncode, out) == (code, "")
        assert errors == ("metastore: interrupted\n" if number == signal.SIGINT else "")
        assert next(store.leases.list()).waiting == 0


# --- on object storage


def test_a_lease_on_object_storage(url: str, tmp_path: Path) -> None:
    """The store fences what is committed under it, if it was named."""
    locks = str(tmp_path / "locks")
    done = call(url, "lease", "run", "x", "--on", locks, "--", sys.executable, "-c", COMMITS_ELSEWHERE)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "lake\n")
    with ms.open(url) as store:
        noted = actions(url, ms.ObjectStoreLeases(locks, store=store).name_in_store("x"))
    assert noted[1:] == [("commit", 1), (noted[0][0], 2)]  # that it was given back is noted in the store, too
    assert actions(url, "x") == []
    leases = ms.ObjectStoreLeases(locks)
    assert [(event.action, event.token) for event in leases.audit("x")] == [("acquire", 1), ("release", 2)]


def test_a_lease_on_object_storage_without_a_database(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    shows = 'printf "%s|%s|%s" "$METASTORE_LEASE_TOKEN" "$METASTORE_LEASES" "${METASTORE_URL-none}"'
    done = call(None, "lease", "run", "x", "--on", str(locks), "--", "sh", "-c", shows, cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"1|{locks}|none")
    assert [file.name for file in tmp_path.iterdir()] == ["locks"]  # and no database
    with ms.ObjectStoreLeases(locks).acquire("x", owner="somebody"):
        done = call(None, "lease", "run", "x", "--on", str(locks), "--", "echo", "written", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (HELD, "")
        one_line(done.stderr, "held by somebody")


# --- signals


@pytest.mark.parametrize(
    "number", long_unless([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], lambda one: one == signal.SIGINT)
)
def test_signals_are_forwarded(sqlite_url: str, tmp_path: Path, number: signal.Signals) -> None:
    heard = tmp_path / "heard"
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo {name} >> {heard}; exit 42' {name}; echo ready >> {heard}; while :; do sleep 0.05; done"
    with running(sqlite_url, "x", "bash", "-c", script) as process:
        lines(heard)
        process.send_signal(number)
        assert process.wait(20) == 42
    assert lines(heard) == ["ready", name]
    assert actions(sqlite_url, "x") == [("acquire", 1), ("release", 2)]


def test_a_signal_that_ends_the_command(sqlite_url: str, tmp_path: Path) -> None:
    """Its children hear of it too."""
    pids = tmp_path / "pids"
    with running(sqlite_url, "x", "sh", "-c", f"sleep 100 & echo $! >> {pids}; wait") as process:
        (child,) = lines(pids)
        process.terminate()
        assert process.wait(20) == 143
    assert not is_alive(child)
    assert actions(sqlite_url, "x") == [("acquire", 1), ("release", 2)]


def _ignore_hangups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_nohup_stays_nohup(sqlite_url: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"echo ready > {ready}; read line; echo $line"
    with ms.open(sqlite_url) as store:
        command = words(sqlite_url, "x", "sh", "-c", script)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
        with subprocess.Popen(command, preexec_fn=_ignore_hangups, env=environment(), **pipes) as process:  # noqa: PLW1509
            lines(ready)
            process.send_signal(signal.SIGHUP)
            assert process.communicate("went on\n", timeout=20)[0] == "went on\n"
        assert process.returncode == 0
        assert store.leases.holder("x") is None


# --- the lease is kept, or lost


def test_a_command_that_lasts_longer_than_the_ttl(url: str) -> None:
    done = run(url, "x", "sh", "-c", "sleep 3; echo done", ttl=2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert actions(url, "x") == [("acquire", 1), ("release", 2)]


def test_a_lease_that_is_broken(url: str, tmp_path: Path) -> None:
    """The command and its children are ended, and the lease is not touched any more."""
    pids = tmp_path / "pids"
    script = f"sleep 100 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    with ms.open(url) as store, running(url, "x", "sh", "-c", script, ttl=2) as process:
        started = lines(pids, 2)
        assert store.leases.break_("x")
        with store.leases.acquire("x", owner="next") as lease:
            out, errors = process.communicate(timeout=20)
            assert (process.returncode, out) == (LOST, "")
            one_line(errors, "'x' (token 1)", "143", "metastore lease audit")
            assert not [pid for pid in started if is_alive(pid)]
            assert owner_of(store, "x") == "next"
            lease.renew()


def test_a_command_that_does_not_heed_sigterm_is_killed(sqlite_url: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; (trap '' TERM; sleep 100) & echo $! >> {pids}; echo $$ >> {pids}; while :; do wait; done"
    with ms.open(sqlite_url) as store, running(sqlite_url, "x", "bash", "-c", script, ttl=2, grace=0.5) as process:
        started = lines(pids, 2)
        store.leases.break_("x")
        one_line(process.communicate(timeout=20)[1], "137")
        assert process.returncode == LOST
        assert wait_until(lambda: not [pid for pid in started if is_alive(pid)], 5)


def test_a_command_that_has_stopped_is_ended_too(sqlite_url: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = ("sh", "-c", f"echo $$ >> {pids}; kill -STOP $$")
    with ms.open(sqlite_url) as store, running(sqlite_url, "x", *command, ttl=2, grace=30) as process:
        (pid,) = lines(pids)
        assert wait_until(lambda: state_of(pid) == "T", 10)
        store.leases.break_("x")
        one_line(process.communicate(timeout=20)[1], "143")
        assert process.returncode == LOST


def test_what_the_command_commits_too_late_changes_nothing(url: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with ms.open(url) as store:
        with running(url, "x", sys.executable, "-c", OUTLIVES, str(told), ttl=2) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "joined\n"
            store.leases.break_("x")
            assert process.wait(20) == LOST
        assert lines(told) == ["LeaseLost"]
        assert not store.metalakes.exists("late")


def test_a_holder_that_was_stopped_past_its_time(url: str, tmp_path: Path) -> None:
    """It finds out when it goes on, whether somebody else has the lease by then or not."""
    pids = tmp_path / "pids"
    with ms.open(url) as store, running(url, "x", "sh", "-c", f"echo $$ >> {pids}; sleep 100", ttl=2) as process:
        (pid,) = lines(pids)
        process.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: owner_of(store, "x") is None, 20)
        lease = store.leases.acquire("x", owner="next")
        assert is_alive(pid)
        process.send_signal(signal.SIGCONT)
        one_line(process.communicate(timeout=20)[1], "143")
        assert process.returncode == LOST
        assert not is_alive(pid)
        lease.renew()
    assert actions(url, "x") == [("acquire", 1), ("takeover", 2)]


def test_a_loss_that_nobody_noticed_in_time(sqlite_url: str, tmp_path: Path) -> None:
    """The command is over before the next renewal; that it ran alone cannot be said all the same."""
    ready = tmp_path / "ready"
    script = f"echo ready > {ready}; read line"
    command = words(sqlite_url, "x", "sh", "-c", script, ttl=1000)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with ms.open(sqlite_url) as store, subprocess.Popen(command, env=environment(), **pipes) as process:
        lines(ready)
        store.leases.break_("x")
        _, errors = process.communicate("\n", timeout=20)
    assert process.returncode == LOST
    one_line(errors, "exit code 0")


# --- what the command leaves behind


def test_the_lease_is_kept_while_something_is_left(sqlite_url: str, tmp_path: Path) -> None:
    """Such as what a shell has at the other end of a pipe."""
    go, done = tmp_path / "go", tmp_path / "done"
    script = f"(until [ -e {go} ]; do sleep 0.02; done; echo done > {done}) >/dev/null 2>&1 & exit 3"
    with ms.open(sqlite_url) as store, running(sqlite_url, "x", "bash", "-c", script, grace=30) as process:
        assert wait_until(lambda: owner_of(store, "x") is not None, 20)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert owner_of(store, "x") is not None
        go.touch()
        assert process.wait(20) == 3
        assert lines(done) == ["done"]
        assert store.leases.holder("x") is None


def test_what_is_left_for_too_long_is_ended(sqlite_url: str) -> None:
    done = run(sqlite_url, "x", "sh", "-c", "sleep 100 >/dev/null 2>&1 & echo $!", grace=0.3)
    assert (done.returncode, done.stderr) == (0, "")
    assert not is_alive(done.stdout)
