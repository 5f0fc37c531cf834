"""Which tests call which functions of the library, and how long each takes: a plugin of pytest that writes it down.

Each process writes a file of its own. A line is a test that passed; it names functions by numbers, and says what the
numbers mean that no line before it has.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import pytest

__all__ = ["FOLDER", "function_of"]

FOLDER = "METASTORE_REACH"
"""The variable that names the folder to write to."""
_TREE = Path(__file__).resolve().parents[2]
_OURS = ("/metastore/", "/retry/")


def function_of(path: str, qualified: str) -> str:
    """Return the name of a function: that of the one it is in, for what has no name of its own."""
    named = [part for part in qualified.split(".") if not part.startswith("<")]
    return f"{path} {'.'.join(named)}"


class Recorder:
    """Note the functions that one test calls, in all its threads."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.getpid()}.jsonl"
        self._process = os.getpid()
        self._seen: set[CodeType] = set()
        self._numbers: dict[str, int] = {}
        self._passed = True

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        self._seen.add(frame.f_code)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._seen, self._passed, began = set(), True, perf_counter()
        threading.settrace(self._note)
        sys.settrace(self._note)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            if self._passed and os.getpid() == self._process:
                self._write(_id(item), perf_counter() - began)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed &= report.passed

    def _write(self, test: str, seconds: float) -> None:
        names = {name for code in list(self._seen) if (name := _name(code))}
        new = [name for name in sorted(names) if name not in self._numbers]
        self._numbers.update({name: n for n, name in enumerate(new, len(self._numbers))})
        line = {"test": test, "seconds": round(seconds, 3), "new": new, "calls": [self._numbers[n] for n in names]}
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _id(item: pytest.Item) -> str:
    """Return what a command line calls a test: xdist adds the test's group."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid.removesuffix(f"@{group.args[0]}") if group else item.nodeid


def _name(code: CodeType) -> str:
    if not any(part in code.co_filename for part in _OURS):
        return ""
    path = Path(code.co_filename).resolve()
    return function_of(path.relative_to(_TREE).as_posix(), code.co_qualname) if path.is_relative_to(_TREE) else ""


def pytest_configure(config: Any) -> None:
    """Record in the processes that run tests, not in the one that hands them out."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER])), "reach")
