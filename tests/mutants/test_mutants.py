"""The mutants are made as they should be, each argued one still exists, and their tests are there."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.mutants.__main__ import sample
from tests.mutants.areas import AREAS, Area
from tests.mutants.argued import ARGUED
from tests.mutants.choose import chosen
from tests.mutants.generate import mutants_of
from tests.mutants.near import near

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


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_an_area_has_files_and_tests(area: Area) -> None:
    assert area.files(_TREE)
    commands = {area.then, *(near(file) for file in area.files(_TREE))}
    paths = {word for tests in commands for word in shlex.split(tests) if word.startswith("tests/")}
    assert [path for path in paths if not (_TREE / path).exists()] == []


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
