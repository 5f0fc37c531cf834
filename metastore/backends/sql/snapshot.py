"""The statements of ``Backend.snapshot``, the same for PostgreSQL and SQLite.

Names of tables and columns come from our own code; a test compares them with the declared tables.
"""

from __future__ import annotations

from collections.abc import Sequence

_LAST = "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {})"
POSTGRES_NUMBERS = f"SELECT {_LAST.format('entity_id_seq')}, {_LAST.format('change_seq')}"
SQLITE_NUMBERS = "SELECT last_id, last_seq FROM info"
"""The last id and the last position that were drawn."""


def select(table: str, columns: Sequence[str], order: Sequence[str], among: str | None = None) -> str:
    """Return the statement for ``columns`` of all rows with a value in the first column of ``order``, in that order.

    ``among`` is the dialect's condition that this value is one of the ids in its only parameter.
    """
    where = f"{order[0]} {among or 'IS NOT NULL'}"
    return f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY {', '.join(order)}"


def select_below(columns: Sequence[str], among: str, *, gone: bool) -> str:
    """Return the statement for the children of the ids in the parameter, in parts that each use a partial index."""
    inner = f"SELECT {', '.join(dict.fromkeys((*columns, *_BY)))} FROM guard WHERE parent_id {among} AND state "
    parts = [inner + comparison for comparison in ("= 0", "<> 0")[: 2 if gone else 1]]
    return f"SELECT {', '.join(columns)} FROM ({' UNION ALL '.join(parts)}) AS c ORDER BY {', '.join(_BY)}"


_BY = ("parent_id", "family", "key", "id")
