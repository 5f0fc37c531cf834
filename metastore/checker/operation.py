"""One operation as the checker sees it: its client's record, and its events in the feed."""

from __future__ import annotations

from typing import Final, NamedTuple

from metastore.checker.records import Lost, Seen
from metastore.checker.tree import Placed

__all__ = ["READS", "ClientOperation"]


class ClientOperation(NamedTuple):
    """The checked fields of the record (:class:`metastore.checker.records.Operation`), and the events."""

    client: str
    number: int
    action: str
    kind: str | None
    path: str | None
    clock: str
    start: int
    end: int | None
    outcome: str
    entity_id: int | None
    version_after: int | None
    helped: bool | None
    held_from: int | None
    held_to: int | None
    operation_id: str | None
    at: float
    error: str | None
    conflicts: tuple[Lost, ...]
    reads: tuple[Seen, ...]
    events: tuple[Placed, ...]
    """The events of the operation, ordered by position."""


READS: Final = frozenset({"load", "exists", "list", "names", "load_many"})
"""The actions that never write."""
