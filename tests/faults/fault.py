"""A fault that is planted in the library: a text of its code, and the text that replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DoesNotApply", "Fault"]


class DoesNotApply(Exception):
    """The text of a fault is not where it was, or more than once: the fault needs another text."""


@dataclass(frozen=True)
class Fault:
    """One fault, and the tests of ``make test`` that find it."""

    name: str
    where: str
    """The folder or file of the tree that has the text. Its files may be renamed and split."""
    before: str
    after: str
    tests: str
    """What pytest gets: files, and perhaps ``-k``."""

    def file_in(self, tree: Path) -> Path:
        """Return the file that has the text, exactly once. Raises DoesNotApply."""
        root = tree / self.where
        files = [root] if root.is_file() else sorted(root.rglob("*.py"))
        counts = {file: count for file in files if (count := file.read_text().count(self.before))}
        if sum(counts.values()) != 1:
            raise DoesNotApply(
                f"{self.name}: expected its text once in {self.where}, found it {sum(counts.values())} times; "
                "give the fault a text that is there once"
            )
        return next(iter(counts))
