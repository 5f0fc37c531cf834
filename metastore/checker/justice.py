"""Check that an attempt lost only to an operation that won.

A lost attempt is justified in these cases:

* The attempt expected a version of an entity, and another operation committed the next version.
* It found its name taken, and its client got this error in the end. That is a read, and checked as a read.
* It lost to anything else (an ancestor, a mark, a name, a deadlock) while an operation of another client ran.
* It lost to such a thing after an exclusive operation, because a loaded entity may be older than the call. A freeze
  counts as exclusive, even one of the same client, because the waiting operations have their turn after it. A mark
  lasts minutes at most. An attempt that still meets one after ten is a finding, whatever a clock says.

New operation ids may be refused after the database's clock was ahead. The first refusal repairs that: a minute later,
new ids are accepted. If a new id is still refused after two minutes, the refusal is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from metastore.checker.account import line
from metastore.checker.finding import Finding
from metastore.checker.operation import READS, ClientOperation
from metastore.checker.records import Lost
from metastore.checker.tree import EXCLUSIVE, Placed
from metastore.errors import OperationIdRefused

__all__ = ["Justice"]

_NOBODY: Final = frozenset({"lost", "unavailable"})
"""Causes that lie in the connection or the server."""
_EXCLUSIVE: Final = frozenset({"ancestor", "marked", "busy"})
_MARKS: Final = frozenset({"marked", "busy"})
_STANDS: Final = 600 * 10**9
"""How long a mark can last after the call that set it (nanoseconds): calls end by their deadlines."""

_MENDED: Final = 120 * 10**9
"""How long after a refusal new operation ids may still be refused (nanoseconds)."""
_NEW: Final = 60.0
"""How old an operation id may be to count as made for its call (seconds). gc keeps each id for longer."""


class Justice:
    """Keeps track of the clients that are writing, and of exclusive operations."""

    def __init__(self) -> None:
        self._writing: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._exclusive = 0
        self._last: int | None = None
        """The time when the last exclusive operation returned; None: one has not returned yet, or there was none."""
        self._open = False
        self._refused: ClientOperation | None = None
        """The first returned operation with an id that was refused although it was new."""
        self.others = False
        """Whether a writer without recorded calls exists: any attempt may have lost to it."""

    def wrote(self, event: Placed) -> None:
        self._exclusive += event.exclusive

    def begins(self, operation: ClientOperation) -> None:
        if operation.action in READS:
            return
        self._writing[operation.client] = operation.number
        if operation.action == "freeze":
            self._exclusive += 1
        if _is_exclusive(operation) and operation.end is None:
            self._open = True  # the client died, so its mark stays until another client clears the mark

    def ends(self, operation: ClientOperation, newer: Callable[[int, int], bool]) -> Iterator[Finding]:
        """Yield each conflict without a winner. ``newer(id, version)`` returns whether a later version exists."""
        if operation.action in READS or operation.end is None:
            return
        if self._writing.get(operation.client) == operation.number:
            del self._writing[operation.client]
        yield from self._accepted(operation)
        for lost in operation.conflicts:
            if not self._just(operation, lost, newer):
                where = "" if lost.entity_id is None else f" on entity {lost.entity_id}"
                expected = "" if lost.expected is None else f", which it expected at version {lost.expected}"
                message = f"an attempt lost ({lost.cause}){where}{expected}, and no operation had won"
                yield Finding("conflict", message, (line(operation),))
        if _is_exclusive(operation):
            self._last = max(operation.end, self._last or 0)
        self._ended[operation.client] = max(operation.end, self._ended.get(operation.client, 0))

    def _accepted(self, operation: ClientOperation) -> Iterator[Finding]:
        """Check that new operation ids are accepted again some time after a refusal has returned."""
        if operation.error != OperationIdRefused.__name__ or not _has_new_id(operation):
            return
        if self._refused is None:
            self._refused = operation
        elif operation.start - (self._refused.end or 0) > _MENDED:
            message = f"operation id {operation.operation_id}, made for the call, was refused as too old"
            yield Finding("conflict", message, (line(self._refused), line(operation)))

    def _is_long_ago(self, lost: Lost, operation: ClientOperation) -> bool:
        """Whether a mark was in the way so long after the last exclusive operation that it should have been cleared."""
        if lost.cause not in _MARKS or self._open or self._last is None:
            return False
        return operation.start - self._last > _STANDS

    def _just(self, operation: ClientOperation, lost: Lost, newer: Callable[[int, int], bool]) -> bool:
        if lost.cause in _NOBODY:
            return True
        if lost.cause == "self" and lost.entity_id is not None and lost.expected is not None:
            mine = {(event.entity_id, event.version) for event in operation.events}
            own = (lost.entity_id, lost.expected + 1) in mine and operation.helped is False
            return newer(lost.entity_id, lost.expected) and not own
        if lost.cause == "name" and any(seen.there for seen in operation.reads):
            return True
        if self.others or (lost.cause in _EXCLUSIVE and self._exclusive and not self._is_long_ago(lost, operation)):
            return True
        return any(client != operation.client for client in self._writing) or any(
            end >= operation.start for client, end in self._ended.items() if client != operation.client
        )


def _has_new_id(operation: ClientOperation) -> bool:
    """Whether an operation's id was made for its call, by the client's clock.

    An id that is derived from a key contains no time.
    """
    if operation.operation_id is None:
        return False
    made = UUID(operation.operation_id)
    return made.version == 8 or abs((made.int >> 80) / 1000 - operation.at) < _NEW


def _is_exclusive(operation: ClientOperation) -> bool:
    return operation.action in (*EXCLUSIVE, "freeze") or any(event.exclusive for event in operation.events)
