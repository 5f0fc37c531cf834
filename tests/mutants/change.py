"""One small change of a source file, and the source file that it is made in."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

__all__ = ["Change", "Source"]


class Change(NamedTuple):
    """What one mutant replaces. ``kind`` groups alike changes, so that a choice has some of each."""

    kind: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """The text of a file, and where the nodes of its syntax tree are in it."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def meaning(self) -> str:
        """The syntax tree as text: without what formats it."""
        return ast.dump(self.tree)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line))
        return starts

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node begins and ends, in characters of the text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Return the offset of a place; the column counts bytes, as in the syntax tree."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]
