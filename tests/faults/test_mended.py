"""Each mend of the reviews' findings names tests that exist, run, and are not skipped."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.faults.mended import MENDED

_TREE = Path(__file__).resolve().parents[2]


@cache
def _tests(file: str) -> dict[str, ast.FunctionDef]:
    """Return the tests of a file, by what follows the file in pytest's names."""
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse((_TREE / file).read_text()).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + one.name: one for one in inside if isinstance(one, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("subject", MENDED)
def test_its_tests_exist_and_run_with_all_others(subject: str) -> None:
    assert MENDED[subject]
    for name in MENDED[subject]:
        file, _, test = name.partition("::")
        function = _tests(file).get(test)
        assert function is not None, f"{name} is not a test: say which test shows that {subject}"
        assert test.rpartition("::")[2].startswith("test_")
        marks = {ast.unparse(mark).partition("(")[0] for mark in function.decorator_list}
        assert not marks & {"pytest.mark.long", "pytest.mark.skip", "pytest.mark.xfail"}, name
        assert any(isinstance(node, ast.Assert | ast.With | ast.Call) for node in ast.walk(function)), name


def test_no_test_stands_twice_below_a_subject() -> None:
    assert [subject for subject, tests in MENDED.items() if len({*tests}) < len(tests)] == []
