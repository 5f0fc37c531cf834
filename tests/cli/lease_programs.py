"""Programs that run under a lease, in real processes, and what a test sees of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import metastore as ms
from tests.cli.test_cli import environment
from tests.servers.process import wait_until

__all__ = ["is_alive", "lines", "owner_of", "running", "state_of", "words"]


def _heed_signals() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # a shell's background job has them ignored
        signal.signal(number, signal.SIG_DFL)


def words(url: str, name: str, *command: str, **options: float | str) -> list[str]:
    """Return the words of ``metastore lease run``."""
    flags = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return [sys.executable, "-m", "metastore", "--url", url, "lease", "run", name, *flags, "--", *command]


@contextmanager
def running(url: str, name: str, *command: str, **options: float | str) -> Iterator[subprocess.Popen[str]]:
    """Run a command under a lease; at the end nothing of it is left, whatever the test did."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    process = subprocess.Popen(
        words(url, name, *command, **options),
        env=environment(),
        preexec_fn=_heed_signals,  # noqa: PLW1509
        **pipes,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.communicate(timeout=15)
        finally:
            process.kill()


def lines(file: Path, count: int = 1) -> list[str]:
    """Wait until a program has written so many lines; return them."""
    assert wait_until(lambda: file.exists() and file.read_text().count("\n") >= count, 20)
    return file.read_text().splitlines()


def is_alive(pid: str | int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return state_of(pid) != "Z"


def state_of(pid: str | int) -> str:
    """Return the letter of a process's state; gone is "Z" too."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def owner_of(store: ms.Store, name: str) -> str | None:
    """Return who holds a lease."""
    holder = store.leases.holder(name)
    return None if holder is None else holder.owner
