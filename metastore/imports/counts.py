"""The outcome of an import of tables from another catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["ImportCounts", "Tell"]

Tell = Callable[[str, float], None]
"""Called with the name of the step, and its progress, 0 to 1."""


@dataclass
class ImportCounts:
    """The counts of an import; ``failures`` names each table that was not imported, and why.

    All other tables are up to date.
    """

    namespaces: int = 0
    written: int = 0
    left: int = 0
    """How many existed already, equal to the source."""
    failures: list[str] = field(default_factory=list)
