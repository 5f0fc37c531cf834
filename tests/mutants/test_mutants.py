"""The mutants are made as they should be, each argued one still exists, and their tests are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import sample
from tests.mutants.areas import AREAS, ASKED
from tests.mutants.argued import ARGUED
from tests.mutants.choose import chosen
from tests.mutants.generate import mutants_of
from tests.mutants.near import read
from tests.mutants.reach import FOLDER

_TREE = Path(__file__).resolve().parents[2]

_PROGRAM = '''\
"""SELECT what is documented, AND no more."""

def f(a: int | None, b: int) -> bool:
    """Return a WHERE b AND c."""
    g(a)
    log.info("SELECT a WHERE b AND c")
    if a < b or not a:
        raise ValueError("no")
    return a == b + 1

SQL = f"""SELECT x FROM t WHERE a = {key(1 < 2)} AND b > :b  -- AND c
  ORDER BY id DESC FOR UPDATE"""
UPDATED = "UPDATE t SET a = CASE WHEN b THEN c END, d = coalesce(e, f) WHERE g BETWEEN 1 AND 2"
'''
_EXPECTED = {
    "f: g(a) -> pass",
    "f: a < b or not a -> False",
    "f: a < b or not a -> True",
    "f: a < b or not a -> (not a)",
    "f: a < b or not a -> (a < b)",
    "f: a < b -> (a <= b)",
    "f: not a -> a",
    'f: raise ValueError("no") -> pass',
    "f: a == b + 1 -> (a != b + 1)",
    "f: b + 1 -> b",
    "SQL: without a = {key(1 < 2)} AND",
    "SQL: without AND b > :b",
    "SQL: > -> >=",
    "SQL: without DESC",
    "SQL: without FOR UPDATE",
    "UPDATED: without a = CASE WHEN b THEN c END,",
    "UPDATED: without , d = coalesce(e, f)",
}


def test_what_is_changed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(_PROGRAM)
    made = [mutant for mutant in mutants_of(tmp_path, "a.py") if mutant.differs()]
    assert {mutant.name.removeprefix("a.py ") for mutant in made} == _EXPECTED
    for mutant in made:
        fault = mutant.fault("tests")
        assert fault.file_in(tmp_path) == tmp_path / "a.py"
        assert _PROGRAM.replace(fault.before, fault.after) == mutant.changed()


@pytest.mark.long
def test_the_choice_has_two_hundred() -> None:
    names = [mutant.name for _, mutant in chosen(_TREE, 1)]
    assert len(set(names)) == sum(area.share for area in AREAS) == 200


def test_areas_have_files_and_tests() -> None:
    assert [area.name for area in AREAS if not area.files(_TREE)] == []
    assert [path for path in ASKED if not (_TREE / "tests" / path).exists()] == []


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    (tmp_path / "metastore").mkdir()
    (tmp_path / "metastore" / "a.py").write_text("A = 1\nB = A\n\n\ndef f():\n    return B\n\n\ndef g():\n    pass\n")
    lines = [
        {"test": "t.py::wide", "seconds": 2.0, "new": ["metastore/a.py f", "metastore/a.py g"], "calls": [0, 1]},
        {"test": "t.py::long", "seconds": 60.0, "new": [], "calls": [0]},
        {"test": "t.py::near[b]", "seconds": 2.0, "new": [], "calls": [0]},
        {"test": "t.py::near[a]", "seconds": 1.0, "new": [], "calls": [0]},
        {"test": "t.py::too_long", "seconds": 600.0, "new": [], "calls": [0]},
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read(tmp_path, tmp_path)
    all_of_f = [["t.py::near[a]", "t.py::wide"], ["t.py::long"]]
    assert found.of("metastore/a.py", "g") == [["t.py::wide"]]
    assert found.of("metastore/a.py", "f") == found.of("metastore/a.py", "A") == found.of("metastore/a.py", "B")
    assert found.of("metastore/a.py", "f")[0][:2] == all_of_f[0]
    assert found.of("metastore/a.py", "never called")[0][:2] == all_of_f[0]
    assert found.of("metastore/b.py", "h") == []


@pytest.mark.only_whole
def test_what_a_test_calls_is_recorded(tmp_path: Path) -> None:
    test = "tests/mutants/test_mutants.py::test_areas_have_files_and_tests"
    other = "tests/unit/test_names.py"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.mutants.reach"]
    environment = {**os.environ, FOLDER: str(tmp_path)}
    subprocess.run([*command, test, other], cwd=_TREE, env=environment, check=True, capture_output=True)
    found = read(tmp_path, _TREE)
    lots = found.of("metastore/names.py", "parse_path")
    assert lots
    assert all(name.startswith(other) for lot in lots for name in lot)


def test_no_file_is_in_two_areas() -> None:
    files = [file for area in AREAS for file in area.files(_TREE)]
    assert len(files) == len(set(files))


@pytest.mark.parametrize("path", sorted({name.partition(" ")[0] for name in ARGUED}))
def test_what_is_argued_still_exists(path: str) -> None:
    made = {mutant.name for mutant in mutants_of(_TREE, path)}
    gone = [name for name in ARGUED if name.partition(" ")[0] == path and name not in made]
    assert gone == [], "remove it from argued.py, or argue it as it is now"


def test_a_row_of_samples_has_all() -> None:
    items = list(range(200))
    assert sorted(one for day in range(10) for one in sample(items, 20, day)) == items
    assert sample(items, 300, 1) == items
