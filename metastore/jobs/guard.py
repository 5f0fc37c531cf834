"""Run one command, and end it when the server is gone, stops the command, or may no longer run it.

The server runs this file as a program: ``python guard.py -- WORD…``. It imports nothing of metastore, so that it starts
at once. Lines on its input: ``until SECONDS``, the time on the monotonic clock up to which the command may run, and
``stop GRACE``, which ends it. The end of the input means that the server is dead: then the command is killed at once.
So the command never runs after the server's lease is over, whether the server was killed, is stopped or hangs.

The last line of its output is ``exit CODE``; 128 + n if the signal n ended the command.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

_LOOKS = 0.05
"""How often the guard checks whether the command has ended (seconds)."""
_PARENT_DIES = 1
"""PR_SET_PDEATHSIG: on Linux this process gets a signal when its parent dies."""


def _signal_at_the_end_of_the_parent(number: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DIES, number)


def _die_with_the_guard() -> None:
    _signal_at_the_end_of_the_parent(signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _seen_through(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command, or end it when its time is over; return its exit code."""
    until = killed_at = float("inf")
    text, open_input = b"", True
    while (code := process.poll()) is None:
        ready = select.select([0] if open_input else [], [], [], _LOOKS)[0]
        data = os.read(0, 4096) if ready else b""
        if ready and not data:
            open_input, until = False, 0.0
        *lines, text = (text + data).split(b"\n")
        for word, value in (line.split() for line in lines):
            if word == b"until":
                until = float(value)
            else:
                killed_at = min(killed_at, time.monotonic() + float(value))  # noqa: TID251
                _kill(process, signal.SIGTERM)
                _kill(process, signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT
        if time.monotonic() >= min(until, killed_at):  # noqa: TID251
            _kill(process, signal.SIGKILL)
    _kill(process, signal.SIGKILL)  # kill the processes that the command left in its group
    return code


def main(words: list[str]) -> None:
    """Run the command, and report its exit code."""
    # if the command has stopped this guard, the signal makes it continue, and read the end of its input
    _signal_at_the_end_of_the_parent(signal.SIGCONT)
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            preexec_fn=_die_with_the_guard,  # noqa: PLW1509  (the guard has one thread)
        )
    except OSError as error:
        os.write(2, f"the command cannot be run: {error.strerror}: {words[0]}\n".encode())
        code = 127 if isinstance(error, FileNotFoundError) else 126
    else:
        code = _seen_through(process)
    os.write(1, b"exit %d\n" % (code if code >= 0 else 128 - code))


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("--") + 1 :])
