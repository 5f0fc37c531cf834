"""Each planted fault still has its place in the tree, and tests that are there to find it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.fault import DoesNotApply, Fault
from tests.faults.faults import FAULTS
from tests.faults.selecting import NOTHING, paths_of

_TREE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies(fault: Fault) -> None:
    file = fault.file_in(_TREE)
    assert fault.after != fault.before
    compile(file.read_text().replace(fault.before, fault.after), str(file), "exec")
    paths = [word for word in shlex.split(fault.tests) if word.startswith("tests/")]
    assert paths
    assert [path for path in paths if not (_TREE / path).exists()] == []


@pytest.mark.long
def test_each_selects_a_test() -> None:
    """Its backend has the test, and the test has still the name."""
    paths = sorted({path for fault in FAULTS for path in paths_of(fault)})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", "", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "-p", "tests.faults.selecting", *paths], cwd=_TREE, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert [line for line in ended.stdout.splitlines() if line.startswith(NOTHING)] == []


def test_each_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []


def test_one_that_has_no_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for before, count in (("x = 1", 2), ("x = 2", 0)):
        with pytest.raises(DoesNotApply, match=f"found it {count} times"):
            Fault("a fault", ".", before, "x = 3", "tests").file_in(tmp_path)
    assert Fault("a fault", ".", "1\nx", "2\nx", "tests").file_in(tmp_path) == tmp_path / "a.py"
