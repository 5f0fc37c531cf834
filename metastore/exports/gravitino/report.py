"""The report of an export into Gravitino's tables: the written rows, and the losses."""

from __future__ import annotations

from dataclasses import dataclass, field

from metastore.imports.gravitino.report import Finding

__all__ = ["ExportReport"]


@dataclass
class ExportReport:
    """How an export went. Each entity is in ``counts``, or a finding names it as left out.

    ``findings`` also name each field, row and relation of a written entity that reads back differently.
    """

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How many live entities of each kind were written."""
    rows: int = 0
    """How many rows were written, over all tables."""
    replaced: bool = False
    """Whether this export replaced an earlier one."""

    @property
    def whole(self) -> bool:
        """Whether the store was exported completely: the report has no findings."""
        return not self.findings

    def find(self, problem: str, what: str, done: str) -> None:
        """Note a difference. ``problem``: no_place, refused, secret, changed."""
        self.findings.append(Finding(problem, what, done))
