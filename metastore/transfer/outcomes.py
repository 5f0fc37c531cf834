"""What an export and an import came to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Exported", "Imported"]


@dataclass(frozen=True)
class Exported:
    """What an export came to."""

    lines: int
    entities: int
    owned: int
    operations: int
    hash: str
    """Of what a user sees: the same in any database with the same content."""
    checksum: str
    """Of the lines as they are."""
    position: str | None
    """From here the change feed goes on; None: something was under way for too long."""
    kept: int = 0
    """How many lines were there already, from an export that was stopped."""
    anew: str | None = None
    """Why what was there was not kept."""


@dataclass(frozen=True)
class Imported:
    """What an import came to."""

    lines: int
    written: int
    """Entities and owned rows that were created, or replaced."""
    left: int
    """Those that were left as they were: equal already, or not to be replaced."""
    hash: str
    """Of what a user sees of the file's content: what the export said."""
    checksum: str
    restored: bool
    """With ids: the database is what the exported one was."""
