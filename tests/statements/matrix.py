"""Which operation makes which other one retry: the table in docs/conflict-matrix.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.statements.operations import OPERATIONS

__all__ = ["CAUSES", "GROUPS", "NEVER", "Cell", "Seen", "matrix", "read_tables", "tables", "write_tables"]

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(o.group for o in OPERATIONS))
"""The rows and columns."""
NEVER = "·"
CAUSES = "loses to"
"""The last column."""
_BEGIN, _END = "<!-- tables -->", "<!-- end of tables -->"


class Seen(NamedTuple):
    """What one operation of a pair met."""

    group: str
    other: str
    schedules: int
    retried: int
    """In how many of them it lost an attempt."""
    causes: frozenset[str]


@dataclass
class Cell:
    """All operations of one group beside all of another."""

    schedules: int = 0
    retried: int = 0
    causes: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The share of interleavings, in percent; below one it is one."""
        return f"{max(1, round(100 * self.retried / self.schedules))}" if self.retried else NEVER


Matrix = Mapping[tuple[str, str], Cell]


def matrix(seen: Iterable[Seen]) -> Matrix:
    """Add up what was seen: by the group of who retries, and of who makes it."""
    cells: dict[tuple[str, str], Cell] = defaultdict(Cell)
    for one in seen:
        cell = cells[one.group, one.other]
        cell.schedules += one.schedules
        cell.retried += one.retried
        cell.causes |= one.causes
    return cells


def tables(name: str, cells: Matrix, before: Mapping[tuple[str, str], str] | None = None) -> str:
    """Return the matrix of a database as Markdown; where nothing was seen, with the cells ``before``."""
    kept = before or {}
    lines = [f"### {name}", "", "| | " + " | ".join(map(str, range(1, len(GROUPS) + 1))) + f" | {CAUSES} |"]
    lines.append("|---|" + "--:|" * len(GROUPS) + "---|")
    for n, row in enumerate(GROUPS, 1):
        found = {other: cells.get((row, other), Cell()) for other in GROUPS}
        texts = [c.text if c.schedules else kept.get((row, other), NEVER) for other, c in found.items()]
        known = set(kept.get((row, CAUSES), "").split(", ")) - {""}
        causes = ", ".join(sorted(known.union(*[c.causes for c in found.values()])))
        lines.append(f"| {n} {row} | " + " | ".join(texts) + f" | {causes} |")
    return "\n".join(lines)


def write_tables(path: Path, text: str) -> None:
    """Put the tables where the old ones are."""
    before, _, rest = path.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}")


def read_tables(path: Path) -> dict[str, dict[tuple[str, str], str]]:
    """Return the cells of each database, as they are written, and to what each row loses (``CAUSES``)."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    cells: dict[tuple[str, str], str] = {}
    for line in path.read_text().splitlines():
        if line.startswith("### "):
            cells = found[line.removeprefix("### ")] = {}
        elif line.startswith("| ") and line[2].isdigit():
            first, *rest = [part.strip() for part in line.strip("|").split("|")]
            row = first.partition(" ")[2]
            cells |= {(row, GROUPS[n]): text for n, text in enumerate(rest[:-1])}
            cells[row, CAUSES] = rest[-1]
    return found
