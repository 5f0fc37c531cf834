"""Check that each operation was applied, or has one row with the reason why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from metastore.port.intents import FORMAT, PENDING
from metastore.port.snapshot import TableSnapshot
from metastore.port.unreadable import reason
from metastore.verify.history import changes_problem, time_problem
from metastore.verify.steps import Together
from metastore.verify.violations import UNAPPLIED, Violation

__all__ = ["check_operations"]


class _Row(NamedTuple):
    """One row of the operation table, with the columns that show the outcome of the operation."""

    operation_id: Any
    ordinal: int
    action: str
    seq: int | None
    version: int | None
    entity_id: int | None
    path_before: str | None
    path_after: str | None
    kind: str | None
    changes: str | None
    format: int | None
    deadline: int | None
    result: str | None
    time: int
    through: int | None


def check_operations(snapshot: TableSnapshot, *, complete: bool, past_from: int) -> Iterator[Violation]:
    """Check that each operation was applied and is in the feed, or has one row with its outcome."""
    rows = (_Row(*row) for row in snapshot.rows("operation", _Row._fields, _Row._fields[:2]))
    for operation, group in groupby(rows, key=lambda row: row.operation_id):
        unapplied: str | None = None
        together = Together(complete=complete, past_from=past_from)
        for n, row in enumerate(group):
            for invariant, problem in (*_problems(row), *_unreadable(row)):
                message = f"operation {operation} ({row.action}, write {row.ordinal}) {problem}"
                yield Violation(invariant, row.entity_id, row.path_after or row.path_before, message)
            together.row(row.kind, row.ordinal, row.seq, row.through)
            unapplied = row.action if row.action in UNAPPLIED else unapplied
            if n and unapplied is not None:
                message = (
                    f"operation {operation} is {unapplied}, and yet has other rows (write {row.ordinal}: {row.action})"
                )
                yield Violation(6, row.entity_id, row.path_after or row.path_before, message)
        for problem in together.problems():
            yield Violation(15, None, None, f"operation {operation} {problem}")


def _problems(row: _Row) -> Iterator[tuple[int, str]]:
    if row.action not in UNAPPLIED:
        if row.seq is None:
            yield 8, "has no position in the feed"
        return
    if row.seq is not None or row.version is not None:
        yield 6, f"has position {row.seq} and version {row.version}, although it was not applied"
    if row.ordinal != 0:
        yield 6, "was not applied, so it must be write 0"
    if row.action in ("failed", "unchanged") and row.result is None:
        yield 6, "does not have its answer"
    if row.action == PENDING:
        needed = ("entity_id", "kind", "changes", "format", "deadline")
        if missing := [name for name in needed if getattr(row, name) is None]:
            yield 7, f"cannot be applied, and does not end: it has no {', no '.join(missing)}"
        elif (row.format or 0) <= FORMAT and not _can_be_read(row.changes):
            yield 7, "cannot be applied: its changes cannot be read"


def _unreadable(row: _Row) -> Iterator[tuple[int, str]]:
    """Yield the unreadable parts of an operation that was not applied. The check of histories covers all others."""
    if row.action not in UNAPPLIED:
        return
    if problem := time_problem("noted", row.time):
        yield 8, f"cannot be read: {problem}"
    try:
        json.loads(row.result or "null")
    except (TypeError, ValueError, RecursionError) as error:
        yield 8, f"does not have its answer: {reason(error)}"


def _can_be_read(changes: str | None) -> bool:
    return bool(changes) and changes_problem(changes) is None
