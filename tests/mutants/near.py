"""Which tests reach a mutant: those that call its function, the quickest of each kind first."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.reach import function_of

__all__ = ["Near", "Test", "read"]

_FIRST: Final = 12.0
"""How many seconds of tests run first. Most mutants that a test finds are found here."""
_LONGEST: Final = 240.0
"""How many seconds of tests run then."""


class Test(NamedTuple):
    """A test, how long it takes, and how many functions it calls: the fewer, the more it is about each."""

    name: str
    seconds: float
    calls: int


@dataclass(frozen=True)
class Near:
    """The tests that call each function, and the functions that use each constant."""

    tests: Mapping[str, Sequence[Test]]
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, path: str, function: str) -> list[list[str]]:
        """Return the tests to run for a change of a function or a constant, in two lots: the nearest ones first."""
        tests = _in_turns(chain.from_iterable(self.tests.get(one, ()) for one in self._functions(path, function)))
        spent = list(accumulate(test.seconds for test in tests))
        first = [test.name for test, until in zip(tests, spent, strict=True) if until <= _FIRST]
        then = [test.name for test, until in zip(tests, spent, strict=True) if _FIRST < until <= _LONGEST]
        return [lot for lot in (first, then) if lot]

    def _functions(self, path: str, function: str) -> Iterable[str]:
        """Return who calls the changed text. What no test calls by name is a constant, or the body of a class."""
        whole = function_of(path, function)
        if whole in self.tests:
            return [whole]
        last = function.rpartition(".")[2]
        found, waiting = dict.fromkeys(self.users.get(last, ())), [last]
        for name in waiting:  # a constant that a constant has is used where that is
            users = dict.fromkeys(self.users.get(name, ()))
            found |= users
            waiting += [n for user in users if (n := user.rpartition(" ")[2]) not in waiting and user not in self.tests]
        return found or [one for one in self.tests if one.startswith(f"{path} ")]


def read(folder: Path, tree: Path) -> Near:
    """Read what ``reach`` has written, and which functions of the tree use which names."""
    tests: dict[str, list[Test]] = defaultdict(list)
    for file in sorted(folder.glob("*.jsonl")):
        names: list[str] = []
        for line in map(json.loads, file.read_text().splitlines()):
            names += line["new"]
            test = Test(line["test"], line["seconds"], len(line["calls"]))
            for number in line["calls"]:
                tests[names[number]].append(test)
    return Near(tests, _users(tree))


def _in_turns(tests: Iterable[Test]) -> list[Test]:
    """Return one test of each kind, then a second one of each, and so on; kinds that call little come first.

    A kind is a function of the tests on all its parameters.
    """
    kinds: dict[str, dict[str, Test]] = defaultdict(dict)
    for test in tests:
        kinds[test.name.partition("[")[0]][test.name] = test
    rows = [sorted(kind.values(), key=lambda one: one.seconds * one.calls) for kind in kinds.values()]
    rows.sort(key=lambda row: row[0].seconds * row[0].calls)
    return [test for turn in zip_longest(*rows) for test in turn if test is not None]


def _users(tree: Path) -> Mapping[str, Sequence[str]]:
    users: dict[str, list[str]] = defaultdict(list)
    for root in ("metastore", "retry"):
        for file in sorted((tree / root).rglob("*.py")):
            path = file.resolve().relative_to(tree.resolve()).as_posix()
            for name, user in _used(ast.parse(file.read_text()), ""):
                users[name].append(function_of(path, user))
    return users


def _used(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
    """Yield each name that is read, with the function or constant that reads it."""
    for child in ast.iter_child_nodes(node):
        within = inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{inside}.{child.name}".lstrip(".")
        elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Module):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            within = ast.unparse(target)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and inside:
            yield child.id, inside
        elif isinstance(child, ast.Attribute) and inside:
            yield child.attr, inside
        yield from _used(child, within)
