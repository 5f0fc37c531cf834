"""A copy of the tree, in which one fault at a time is planted, and its tests are run."""

from __future__ import annotations

import compileall
import os
import py_compile
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic
from typing import TypeVar

from tests.faults.fault import Fault

__all__ = ["Ended", "Run", "copied", "in_copies", "planted", "run", "run_tests"]

T = TypeVar("T")
R = TypeVar("R")
LONGEST = 900.0
"""After how many seconds a run of tests is stopped. That shows nothing: a fault counts as found if a test fails."""
_TESTS_FAILED = 1
"""pytest's exit code; any other says that the tests could not be run."""
_BY_TEXT = py_compile.PycInvalidationMode.CHECKED_HASH
_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "__pycache__", "*.egg-info", ".pytest_cache", ".mypy_cache", ".ruff_cache"
)


@dataclass(frozen=True)
class Run:
    """What became of one fault. ``problem``: why its tests could not be run, in their own words."""

    fault: Fault
    found: bool
    seconds: float
    test: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Ended:
    """How a run of tests ended: at the first one that failed (``test``, and ``why``), or otherwise."""

    code: int | None
    """pytest's exit code; None: the run was stopped, because it took too long."""
    test: str = ""
    why: str = ""
    said: str = ""


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """Give a copy of the tree, for a time.

    It is compiled once, so that not each run does it again. A byte code holds only for the very text that it is of.
    """
    with TemporaryDirectory(prefix="metastore-faults-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(tree, copy, symlinks=True, ignore=_NOT_COPIED)
        for part in ("metastore", "retry", "migrations", "tests"):
            compileall.compile_dir(copy / part, quiet=2, invalidation_mode=_BY_TEXT)
        yield copy


def in_copies(tree: Path, items: Iterable[T], workers: int, work: Callable[[T, Path], R]) -> Iterator[R]:
    """Do the work for each item, several at once; yield the results in order. Each worker has a copy of the tree."""
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(workers):
            copies.put(stack.enter_context(copied(tree)))

        def one(item: T) -> R:
            copy = copies.get()
            try:
                return work(item, copy)
            finally:
                copies.put(copy)

        yield from stack.enter_context(ThreadPoolExecutor(workers)).map(one, items)


@contextmanager
def planted(fault: Fault, copy: Path) -> Iterator[None]:
    """Plant the fault in the copy, and take it out again. Raises DoesNotApply if its text is not there exactly once."""
    file = fault.file_in(copy)
    sound = file.read_text()
    file.write_text(sound.replace(fault.before, fault.after))
    try:
        yield
    finally:
        file.write_text(sound)


def run(fault: Fault, copy: Path) -> Run:
    """Plant the fault in the copy, and run its tests until the first one fails.

    Raises DoesNotApply if the tree does not have the fault's text exactly once.
    """
    began = monotonic()
    with planted(fault, copy):
        ended = run_tests(shlex.split(fault.tests), copy)
    seconds = monotonic() - began
    if ended.code == _TESTS_FAILED:
        late = "Timeout" in ended.why  # a busy machine does that too
        return Run(fault, not late, seconds, test=ended.test, problem=ended.why if late else "")
    return Run(fault, False, seconds, problem="" if ended.code == 0 else ended.said)


def run_tests(arguments: Sequence[str], copy: Path, longest: float = LONGEST) -> Ended:
    """Run tests in the copy until the first one fails, and end all processes that they leave behind."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "--tb=no", "--whole"]
    command += arguments
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}  # before the installed one
    with (
        TemporaryFile("w+") as output,
        subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=output, text=True, start_new_session=True
        ) as process,
    ):
        try:
            code = process.wait(longest)
        except subprocess.TimeoutExpired:
            return Ended(None, said=f"the tests did not end in {longest:.0f} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        said = output.read().strip()
    test, _, why = _first_failed(said).partition(" - ")
    return Ended(code, test, why, f"{said[-2000:]}\npytest ended with {code}")


def _first_failed(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].split(" ", 1)[1] if lines else ""
