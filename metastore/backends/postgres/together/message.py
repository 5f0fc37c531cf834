"""The message of a batch: its statements, in order, and the meaning of their rows.

A message with several kinds of writes has a statement for each: creates, then alters, then exclusive updates, which may
be of entities that the message also alters. All existing rows are locked first, by id, and names are taken in order. So
two messages do not deadlock, unless each renames an entity to a name that the other gives up. Then the patience ends,
and the batch is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metastore.backends.postgres.fragments import PATIENT
from metastore.backends.postgres.parameters import Row, Statement, plain
from metastore.backends.postgres.together.alter import alter_statement, altered
from metastore.backends.postgres.together.create import create_statement
from metastore.backends.postgres.together.exclusive import exclusive_statement
from metastore.backends.postgres.together.guards import patience_of
from metastore.backends.sql.comments import without_comments
from metastore.port.batches import TAKEN, Batch, Taken, Written
from metastore.port.writes import Result, Update

_LOCKS = without_comments(f"""WITH
-- The guards of the entities that are updated exclusively, by id.
own AS MATERIALIZED (SELECT g.id FROM guard g
  WHERE g.id = ANY(%(own_ids)s::bigint[]) AND (SELECT {PATIENT}) <> '' ORDER BY g.id FOR UPDATE{{skip}}),
-- The rows of all entities that are updated, by id, after the guards.
rows AS MATERIALIZED (SELECT e.id FROM entity e
  WHERE e.id = ANY(%(ids)s::bigint[]) AND (SELECT count(*) FROM own) >= 0 ORDER BY e.id FOR NO KEY UPDATE{{skip}})
SELECT count(*) FROM rows""")
"""Locks the rows that the later statements lock, in one common order."""
LOCKS: Final = {skip: _LOCKS.format(skip=" SKIP LOCKED" if skip else "") for skip in (False, True)}


def statements(batch: Batch, patience: int) -> list[Statement]:
    """Return the statements that apply a batch. Without patience (0) they skip locked rows."""
    parts = []
    if batch.inserts:
        parts.append(create_statement(batch.inserts, patience))
    if batch.alters:
        parts.append(alter_statement(batch.alters, patience))
    if batch.updates:
        parts.append(exclusive_statement(batch.updates, patience))
    if len(parts) == 1:
        return parts
    own = [one.write.id for one in batch.updates if isinstance(one.write, Update)]
    values = {
        "patience": patience_of(patience),
        "own_ids": plain(own),
        "ids": plain(own + [one.id for one in batch.alters]),
    }
    return [Statement(LOCKS[patience == 0], values), *parts]


def written(batch: Batch, rows: Sequence[Sequence[Row]]) -> Written:
    """Return the results in the rows of these statements."""
    left = iter(rows[-(bool(batch.inserts) + bool(batch.alters) + bool(batch.updates)) :])
    return Written(
        inserts=results(len(batch.inserts), next(left)) if batch.inserts else [],
        alters=altered(batch.alters, next(left)) if batch.alters else [],
        updates=results(len(batch.updates), next(left)) if batch.updates else [],
    )


def results(count: int, rows: Sequence[Row]) -> list[Result | Taken | None]:
    """Return the results in the rows of a batch of creates or exclusive updates: a row for each applied member."""
    found: list[Result | Taken | None] = [None] * count
    for n, entity_id, version, time in rows:
        found[n - 1] = TAKEN if entity_id is None else Result(entity_id, version, time)
    return found
