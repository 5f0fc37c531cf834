"""Each planted fault still has its place in the tree, and tests that are there to find it."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.fault import DoesNotApply, Fault
from tests.faults.faults import FAULTS

_TREE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies(fault: Fault) -> None:
    file = fault.file_in(_TREE)
    assert fault.after != fault.before
    compile(file.read_text().replace(fault.before, fault.after), str(file), "exec")
    paths = [word for word in shlex.split(fault.tests) if word.startswith("tests/")]
    assert paths
    assert [path for path in paths if not (_TREE / path).exists()] == []


def test_each_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []


def test_one_that_has_no_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for before, count in (("x = 1", 2), ("x = 2", 0)):
        with pytest.raises(DoesNotApply, match=f"found it {count} times"):
            Fault("a fault", ".", before, "x = 3", "tests").file_in(tmp_path)
    assert Fault("a fault", ".", "1\nx", "2\nx", "tests").file_in(tmp_path) == tmp_path / "a.py"
