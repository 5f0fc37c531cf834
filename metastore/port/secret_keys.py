"""The operations of a backend for encrypted properties: the wrapped data keys, and the redaction of history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID


class KeyRow(NamedTuple):
    """A data key. Its row is never deleted, so its number is never used again."""

    number: int
    wrapped: str | None
    """The key, encrypted by a key of the environment; None: it was destroyed."""
    wrapper: str
    """The name of the environment's key."""
    created_at: int


class Redaction(NamedTuple):
    """A row of history, and replacements for its texts. A text is replaced only if it has not changed."""

    operation_id: UUID
    ordinal: int
    doc: str | None
    changes: str | None
    result: str | None
    before: tuple[str | None, str | None, str | None]


class SecretKeys(Protocol):
    """The data keys, each changed by a compare-and-swap."""

    def rows(self) -> list[KeyRow]:
        """Return all data keys, by number."""

    def add(self, number: int, wrapped: str, wrapper: str) -> KeyRow:
        """Insert a data key; return it, or the existing key with this number."""

    def rewrap(self, row: KeyRow, wrapped: str | None, wrapper: str) -> bool:
        """Replace the wrapped form of a key (None: destroy the key). Return False if the row has changed."""

    def redact(self, rows: Sequence[Redaction]) -> int:
        """Replace texts of history in one commit; return the number of rows that were unchanged, and so replaced."""

    def erase(self) -> bool:
        """Overwrite replaced and deleted bytes in the database's own files. Return False if such bytes may be left.

        It may take long, but changes nothing that a reader sees. Call it outside of a commit.
        """
