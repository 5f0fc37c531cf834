"""The report of an import: counts, hashes, and each inconsistency by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Finding", "Report"]


@dataclass(frozen=True)
class Finding:
    """One inconsistency.

    ``problem``: orphan, double, double_owner, dangling, unreadable, taken, unknown, kept or secret.
    """

    problem: str
    what: str
    """The subject: a kind, a name and an id."""
    done: str
    """The action of the import."""


@dataclass
class Report:
    """How an import went.

    ``source_hash`` and ``target_hash`` cover everything that a user sees; they are equal if the import is complete.
    """

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How many live entities of each kind were read."""
    dropped: int = 0
    """How many dropped entities were imported so that they can be restored."""
    renamed: int = 0
    removed: int = 0
    """How many entities, rows and relations were gone in Gravitino and were removed here."""
    written: int = 0
    left: int = 0
    source_hash: str = ""
    target_hash: str = ""

    @property
    def same(self) -> bool:
        """Whether the store shows everything that was read."""
        return self.source_hash == self.target_hash

    def find(self, problem: str, what: str, done: str = "left out") -> None:
        """Note an inconsistency."""
        self.findings.append(Finding(problem, what, done))

    def problems(self) -> dict[str, int]:
        """Return how often each problem was found."""
        return dict(Counter(one.problem for one in self.findings))
