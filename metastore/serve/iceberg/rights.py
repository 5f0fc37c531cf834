"""The rights on a table that decide the permissions of a key for its files."""

from __future__ import annotations

from typing import Final

__all__ = ["READS", "RIGHTS", "WRITES"]

READS, WRITES = "select_table", "modify_table"
RIGHTS: Final = (READS, WRITES)
