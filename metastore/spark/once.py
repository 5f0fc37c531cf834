"""Commit each chunk of a task once, even if Spark runs the task again.

Spark repeats a task whose executor died, perhaps minutes later. By then, people may have edited or dropped the entities
that the first run wrote. So each chunk has an operation id, made of the write, the task, and the chunk's number and
content: the second run finds the chunk applied, and leaves it alone. Rows that come in another order the second time
make other chunks, and are written again: no row is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar

from pyspark import TaskContext

from metastore.clock import SYSTEM
from metastore.errors import OperationIdReused, VersionConflict
from metastore.operation.keys import key
from metastore.store import Store
from metastore.transaction.transaction import Transaction

__all__ = ["new_write", "once"]

T = TypeVar("T")


def new_write() -> str:
    """Return the name of one write, on the driver."""
    return str(SYSTEM.operation_id())


def once(
    store: Store, write: str, rows: Iterable[T], size: int, apply: Callable[[Transaction, list[T]], Any]
) -> Iterator[tuple[int, Any]]:
    """Commit the rows of this task in chunks; yield the size of each, and what ``apply(tx, rows)`` returned.

    The result is None if an earlier run of the task has committed the chunk.
    """
    context, left, number = TaskContext.get(), iter(rows), 0
    task = 0 if context is None else context.partitionId()
    while some := list(islice(left, size)):
        number += 1
        content = sha256(repr(some).encode("utf-8", "surrogatepass")).hexdigest()
        yield len(some), _committed(store, key(f"{task}/{number}/{content}", scope=f"spark {write}"), some, apply)


def _committed(store: Store, operation: Any, rows: list[T], apply: Callable[[Transaction, list[T]], Any]) -> Any:
    while True:
        if store.outcome(operation).state == "committed":  # do not apply the rows again: now they may fail
            return None
        try:
            with store.transaction(operation_id=operation) as tx:
                result = apply(tx, rows)
        except VersionConflict:  # another commit was first: read again
            continue
        except OperationIdReused:
            return None
        return result
