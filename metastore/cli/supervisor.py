"""Run a command in its own session, forward signals to it, and end it together with everything that it started.

The session has no terminal, so no terminal can stop the command. The command's children are in its process group,
unless they leave it on purpose.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from metastore.clock import SYSTEM

__all__ = ["Command", "Notices", "see_through"]

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_OTHER = 0
"""The byte that wakes a waiter without a signal; all other bytes are numbers of signals."""
_LOOKS = 1.0
"""How often the supervisor checks, besides at each notice, whether the command may continue (seconds)."""
_LOOKS_AT_THE_END = 0.02
"""How often the supervisor checks whether the group is empty (seconds): no signal reports a grandchild's end."""


class Notices:
    """Signals and other notices that the main thread waits for.

    Before :meth:`forward`, a signal raises KeyboardInterrupt or SystemExit in the ``with`` block. After it, no signal
    interrupts the block. Signals arrive through a pipe that Python itself writes to, so no signal is lost in another
    thread. A signal that was ignored from the start (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._forward = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (*_FORWARDED, signal.SIGCHLD):
            before = signal.getsignal(number)
            if number == signal.SIGCHLD or before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._reader)
        os.close(self._writer)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if self._forward or number == signal.SIGCHLD:
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def forward(self) -> None:
        """From now on, only report signals to :meth:`wait`."""
        self._forward = True

    def wake(self, _: object = None) -> None:
        """Make :meth:`wait` return. Any thread may call this."""
        with suppress(BlockingIOError):  # the pipe is full, so the waiter wakes anyway
            os.write(self._writer, bytes([_OTHER]))

    def wait(self, seconds: float) -> list[int]:
        """Wait for a notice, at most ``seconds``, and return the signals to forward."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        return [number for number in os.read(self._reader, 512) if number in _FORWARDED] if ready else []


class Command:
    """A running command. Raises OSError if it cannot be started."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(words, env=environment, start_new_session=True)

    def code(self) -> int | None:
        """Return the exit code, 128 + n if the signal n ended it; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send a signal to the whole process group."""
        with suppress(
            ProcessLookupError, PermissionError
        ):  # the group has ended, or its number belongs to another user now
            os.killpg(self._process.pid, number)

    def is_gone(self) -> bool:
        """Return whether the process group is empty."""
        if self._process.poll() is None:
            return False
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass  # reap an orphan: the first process of a container inherits them
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return True
        return False


def see_through(command: Command, notices: Notices, grace: float, must_end: Callable[[], bool]) -> int:
    """Wait until a command ends, forward signals to it, and return its exit code when its group is empty.

    ``must_end`` is called after each notice; when it returns True, the command is ended. Processes that the command
    leaves behind have ``grace`` seconds to end on their own.
    """
    try:
        while command.code() is None and not must_end():
            _hear(command, notices, _LOOKS)
        if must_end() or not _gone_within(command, notices, grace, must_end):
            command.send(signal.SIGTERM)
            command.send(signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT
            if not _gone_within(command, notices, grace, lambda: False):
                command.send(signal.SIGKILL)
                _gone_within(command, notices, grace, lambda: False)
    except BaseException:
        command.send(signal.SIGKILL)
        raise
    code = command.code()
    return 128 + signal.SIGKILL if code is None else code


def _hear(command: Command, notices: Notices, seconds: float) -> None:
    for number in notices.wait(seconds):
        command.send(number)


def _gone_within(command: Command, notices: Notices, seconds: float, must_end: Callable[[], bool]) -> bool:
    ends = SYSTEM.monotonic() + seconds
    while not command.is_gone():
        left = ends - SYSTEM.monotonic()
        if left <= 0 or must_end():
            return False
        _hear(command, notices, min(left, _LOOKS_AT_THE_END))
    return True
