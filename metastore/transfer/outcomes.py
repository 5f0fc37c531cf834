"""The results of an export and of an import."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Exported", "Imported"]


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    lines: int
    entities: int
    owned: int
    operations: int
    hash: str
    """The hash of what a user sees: the same in any database with the same content."""
    checksum: str
    """The hash of the lines as they are."""
    position: str | None
    """The change feed goes on from here; None: a writer was running for too long."""
    kept: int = 0
    """How many lines came from an export that was stopped."""
    restarted: str | None = None
    """Why the lines of an export that was stopped were not kept; None: they were, or there were none."""
    relations: int = 0


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    lines: int
    written: int
    """How many entities, owned rows and relations were created or replaced."""
    left: int
    """How many were left as they were: they were equal, or not to be replaced."""
    hash: str
    """The content hash of the file, as the export computed it."""
    checksum: str
    restored: bool
    """Whether the file had ids, so that the database is now what the exported one was."""
