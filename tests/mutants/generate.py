"""Make mutants of the source files: each is a planted fault whose name says what is changed where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Final

from tests.faults.fault import Fault
from tests.mutants.change import Change, Source
from tests.mutants.in_python import changes_of_python, children, raised
from tests.mutants.in_sql import changes_of_sql, is_sql

__all__ = ["Mutant", "mutants_of"]

_SHOWN: Final = frozenset({"__repr__", "__str__"})
_LONGEST: Final = 90
"""How many characters of a text a name shows."""


@dataclass(frozen=True)
class Mutant:
    """A file with one small change. The name holds the place as text, so that it outlives changes elsewhere."""

    name: str
    path: str
    function: str
    kind: str
    source: Source
    change: Change

    def differs(self) -> bool:
        """Tell whether the changed file is Python, and means something else."""
        try:
            return Source(self.changed()).meaning != self.source.meaning
        except SyntaxError:
            return False

    def changed(self) -> str:
        """Return the changed text of the file."""
        return self.source.text[: self.change.start] + self.change.text + self.source.text[self.change.end :]

    def fault(self, tests: str) -> Fault:
        """Return the mutant as a fault: its lines, with as many around them as make them unique in the file."""
        text, change = self.source.text, self.change
        start = text.rfind("\n", 0, change.start) + 1
        end = text.find("\n", change.end) % (len(text) + 1)
        while text.count(text[start:end]) > 1:
            start = text.rfind("\n", 0, max(start - 1, 0)) + 1
            if text.count(text[start:end]) > 1:
                end = text.find("\n", end + 1) % (len(text) + 1)
        after = text[start : change.start] + change.text + text[change.end : end]
        return Fault(self.name, self.path, text[start:end], after, tests)


def mutants_of(tree: Path, path: str) -> Iterator[Mutant]:
    """Yield all mutants of a file, in the order of their places."""
    source = Source((tree / path).read_text())
    names: dict[str, int] = {}
    seen: set[Change] = set()
    for function, change in sorted(_changes(source, source.tree, ""), key=lambda one: one[1][1:]):
        place = change._replace(kind="")
        if place in seen:
            continue
        seen.add(place)
        name = f"{path} {function}: {_shown(source, change)}"
        names[name] = names.get(name, 0) + 1
        number = f" ({names[name]})" if names[name] > 1 else ""
        yield Mutant(name + number, path, function, change.kind, source, change)


def _changes(source: Source, node: ast.AST, function: str) -> Iterator[tuple[str, Change]]:
    """Yield the changes of a node and all in it, each with the function or class that it is in."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    elif isinstance(node, ast.Assign | ast.AnnAssign) and function.rpartition(".")[2][:1] in ("", *ascii_uppercase):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        function = f"{function}.{source.of(target)}".lstrip(".")  # a constant
    if function.rpartition(".")[2] in _SHOWN or (function.endswith(".__init__") and isinstance(node, ast.Assign)):
        return
    yield from ((function, change) for change in (*changes_of_python(source, node), *raised(source, node)))
    for string in _strings(node):
        if is_sql(text := source.of(string)):
            yield from ((function, change) for change in changes_of_sql(text, source.span(string)[0]))
    for child in children(node):
        yield from _changes(source, child, function)


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the strings right below a node that are not docstrings."""
    if isinstance(node, ast.JoinedStr | ast.Expr):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str)):
            yield child


def _shown(source: Source, change: Change) -> str:
    old, new = _short(source.text[change.start : change.end]), _short(change.text)
    return f"{old} -> {new}" if new else f"without {old}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
