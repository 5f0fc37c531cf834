"""The statements of ``Backend.snapshot``, the same for PostgreSQL and SQLite.

Names of tables and columns come from our own code, and are checked against what is declared.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.tables import metadata

__all__ = ["POSTGRES_NUMBERS", "SQLITE_NUMBERS", "select"]

_LAST = "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {})"
POSTGRES_NUMBERS = f"SELECT {_LAST.format('entity_id_seq')}, {_LAST.format('change_seq')}"
SQLITE_NUMBERS = "SELECT last_id, last_seq FROM info"
"""The last id and the last position that were drawn."""


def select(table: str, columns: Sequence[str], order: Sequence[str]) -> str:
    """Return the statement for ``columns`` of all rows with a value in the first of ``order``, so ordered."""
    declared = metadata.tables[table].columns
    assert all(name in declared for name in (*columns, *order))
    return f"SELECT {', '.join(columns)} FROM {table} WHERE {order[0]} IS NOT NULL ORDER BY {', '.join(order)}"
