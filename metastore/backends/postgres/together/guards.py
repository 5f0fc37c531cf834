"""The guards of a batch: locked once for all members, and checked for each member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from metastore.backends.postgres.fragments import PATIENT
from metastore.backends.postgres.parameters import plain
from metastore.backends.sql.comments import without_comments
from metastore.port.conditions import Guard

NAMES_WAIT: Final = 50
"""How long a batch that skips locked rows waits for a name that another commit takes or gives up (milliseconds)."""

GUARDED = without_comments(f"""
-- The guards of all members, shared, by id. A mark announces an exclusive operation, for which guards step aside.
guarded AS MATERIALIZED (
  SELECT id, scope_version FROM guard
  WHERE id = ANY(%(guard_ids)s::bigint[]) AND mark IS NULL AND (SELECT {PATIENT}) <> ''
  ORDER BY id FOR KEY SHARE{{skip}}),
-- The guard sets with at least one guard that differs from what their members saw.
broken AS MATERIALIZED (
  SELECT s.number FROM unnest(%(set_numbers)s::int[], %(set_ids)s::bigint[], %(set_scopes)s::bigint[])
      AS s(number, id, scope)
    LEFT JOIN guarded g ON g.id = s.id AND g.scope_version = s.scope
  -- the count reads the locking CTE to its end
  WHERE g.id IS NULL AND (SELECT count(*) FROM guarded) >= 0)""")


def guard_sets(sets: Sequence[tuple[Guard, ...]], patience: int | None) -> tuple[dict[str, Any], list[int]]:
    """Return the parameters of GUARDED, and for each member the number of its set of guards."""
    numbers: dict[tuple[Guard, ...], int] = {}
    members = [numbers.setdefault(guards, len(numbers)) for guards in sets]
    flat = [(number, guard) for guards, number in numbers.items() for guard in guards]
    values = {
        "patience": None if patience is None else patience_of(patience),
        "guard_ids": plain(sorted({guard.id for _, guard in flat})),
        "set_numbers": plain([number for number, _ in flat]),
        "set_ids": plain([guard.id for _, guard in flat]),
        "set_scopes": plain([guard.scope_version for _, guard in flat]),
    }
    return values, members


def patience_of(patience: int) -> str:
    """Return how long a statement waits for a lock, in PostgreSQL's notation."""
    return f"{patience or NAMES_WAIT}ms"


def flag(condition: str) -> str:
    """Return a condition as a value that the planner cannot analyse, so that it assumes half of the rows."""
    return f"CASE WHEN {condition} THEN true ELSE false END"
