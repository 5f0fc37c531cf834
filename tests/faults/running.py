"""A copy of the tree, in which one fault at a time is planted, and its tests are run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from tests.faults.fault import Fault

__all__ = ["Run", "copied", "run"]

_LONGEST = 900.0
"""After how many seconds a run of tests is stopped. That shows nothing: a fault counts as found if a test fails."""
_TESTS_FAILED = 1
"""pytest's exit code; any other says that the tests could not be run."""
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


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """Give a copy of the tree, for a time."""
    with TemporaryDirectory(prefix="metastore-faults-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(tree, copy, symlinks=True, ignore=_NOT_COPIED)
        yield copy


def run(fault: Fault, copy: Path) -> Run:
    """Plant the fault in the copy, run its tests until the first one fails, and take it out again.

    Raises DoesNotApply if the tree does not have the fault's text exactly once.
    """
    file = fault.file_in(copy)
    sound = file.read_text()
    began = monotonic()
    file.write_text(sound.replace(fault.before, fault.after))
    try:
        done = _tests(fault, copy)
    except subprocess.TimeoutExpired:
        return Run(fault, False, monotonic() - began, problem=f"the tests did not end in {_LONGEST:.0f} s")
    finally:
        file.write_text(sound)
    seconds = monotonic() - began
    if done.returncode == _TESTS_FAILED:
        test, _, why = _first_failed(done.stdout).partition(" - ")
        late = "Timeout" in why  # a busy machine does that too
        return Run(fault, not late, seconds, test=test, problem=why if late else "")
    said = f"{(done.stdout + done.stderr).strip()[-2000:]}\npytest ended with {done.returncode}"
    problem = "" if done.returncode == 0 else said
    return Run(fault, False, seconds, problem=problem)


def _tests(fault: Fault, copy: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "--tb=no"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}  # before the installed one
    return subprocess.run(
        [*command, *shlex.split(fault.tests)],
        cwd=copy,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=_LONGEST,
    )


def _first_failed(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].split(" ", 1)[1] if lines else ""
