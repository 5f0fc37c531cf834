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
    """The hash of the content that a user sees: equal for all databases with equal content."""
    checksum: str
    """The hash of the exact lines."""
    position: str | None
    """The position from which to follow the feed; None: the export could not find it out."""
    kept: int = 0
    """How many lines were kept from an export that was stopped."""
    restarted: str | None = None
    """Why the lines of a stopped export were not kept; None: they were kept, or there were none."""
    relations: int = 0


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    lines: int
    written: int
    """How many entities, owned rows and relations were created or replaced."""
    left: int
    """How many were left unchanged, because they were equal, or the call did not ask for replacement."""
    hash: str
    """The content hash of the file, as the export computed it."""
    checksum: str
    restored: bool
    """Whether the file had ids, so that the database is now a copy of the exported one."""
