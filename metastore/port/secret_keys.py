"""The operations of a backend for encrypted properties: the wrapped data keys, and the redaction of history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

__all__ = ["KeyRow", "Redaction", "SecretKeys"]


class KeyRow(NamedTuple):
    """A data key. Its row is never deleted, so that its number is never used again."""

    number: int
    wrapped: str | None
    """The key, encrypted by a key of the environment; None: it was destroyed."""
    wrapper: str
    """The name of the environment's key."""
    created_at: int


class Redaction(NamedTuple):
    """A row of history, with what takes the place of its texts. They are replaced only if they are still these."""

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
        """Insert a data key; return it, or the one that has the number already."""

    def rewrap(self, row: KeyRow, wrapped: str | None, wrapper: str) -> bool:
        """Replace what wraps a key (None: destroy it) if the row is still as it was; False: it is not."""

    def redact(self, rows: Sequence[Redaction]) -> int:
        """Replace texts of history, all in one commit; return how many rows had not changed meanwhile."""

    def erase(self) -> bool:
        """Overwrite replaced and deleted bytes in the database's own files; False: such bytes may be left.

        It may take long, and changes nothing that a reader sees. Call it outside of a commit.
        """
