"""The processes of a run: started, stopped, killed, replaced. The run's record names each process before it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.joints.crew import Crew

__all__ = ["Crews"]

_FIRST: Final = 1 << 20
"""How much of a journal is looked at for the first answer (bytes)."""
_ASKED: Final = 0.5
"""How long a process that hangs has to say where (seconds)."""


class Crews:
    """Keeps processes at work. ``started.jsonl`` names each client before its process begins."""

    def __init__(self, folder: Path, url: str, crews: list[Crew]) -> None:
        self._folder, self.url = folder, url
        self._file = (folder / "started.jsonl").open("a", buffering=1)
        self._output = (folder / "output.txt").open("a")
        self._running: dict[str, tuple[Crew, subprocess.Popen[bytes]]] = {}
        self._number = 0
        for crew in crews:
            self._start(crew)

    @property
    def names(self) -> list[str]:
        """The processes that run."""
        return list(self._running)

    def at_work(self) -> bool:
        """Whether each process has answered a call."""
        journals = [self._folder / "journals" / f"{name}.jsonl" for name in self._running]
        return all(journal.exists() and b'"end"' in journal.read_bytes()[:_FIRST] for journal in journals)

    def named(self, cache: str) -> list[str]:
        """Return the processes that have such a cache."""
        return [name for name, (crew, _) in self._running.items() if crew.cache and crew.cache[0] == cache]

    def _start(self, crew: Crew) -> None:
        self._number += 1
        crew = replace(crew, name=f"p{self._number}")
        self._file.write(json.dumps(crew.as_started()) + "\n")
        command = [sys.executable, "-W", "ignore", "-m", "tests.joints.client", crew.as_json()]
        self._running[crew.name] = crew, subprocess.Popen(command, stdout=self._output, stderr=self._output)

    def replace(self, name: str) -> None:
        """Kill a process, and start one like it."""
        crew, process = self._running.pop(name)
        process.kill()
        process.wait()
        self._file.write(json.dumps({"killed": name}) + "\n")
        self._start(crew)

    def stop(self, name: str) -> None:
        """Stop a process (SIGSTOP)."""
        os.kill(self._running[name][1].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a stopped process go on."""
        os.kill(self._running[name][1].pid, signal.SIGCONT)

    def end(self, within: float) -> list[str]:
        """Let all end by themselves; return what is wrong with how they did."""
        (self._folder / "over").touch()
        ends, wrong = time.monotonic() + within, list[str]()
        for name, (_, process) in self._running.items():
            try:
                code = process.wait(max(0.0, ends - time.monotonic()))
                wrong += [f"process {name} ended with {code}"] if code else []
            except subprocess.TimeoutExpired:
                wrong.append(f"process {name} did not end within {within:.0f} s; output.txt says where it is")
                process.send_signal(signal.SIGUSR1)
                time.sleep(_ASKED)
        return wrong

    def kill(self) -> None:
        """Kill whatever runs."""
        for _, process in self._running.values():
            process.kill()
            process.wait()
        self._file.close()
        self._output.close()
