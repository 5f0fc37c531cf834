"""What ``store.find`` asks of a backend: one page of a scan, all of it true at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from metastore.port.records import Record

__all__ = ["Matches", "Search"]


@dataclass(frozen=True)
class Search:
    """One page of what is looked for: the part of an index that is scanned, and what must be true of it."""

    scope: int
    """The entity that must be above; the root's id: any."""
    kind: str
    """Empty: any."""
    glob: str
    folded: str
    """The same glob for names that are compared without case."""
    parent: int
    """The direct parent; -1: any."""
    by_name: bool
    """Names are scanned; otherwise the children of ``parent``."""
    after: tuple[Any, ...]
    """(name, id), or of children (family, key), after which the scan begins."""
    before: str
    """Of names: before which it ends."""
    limit: int
    """How many rows are scanned."""


class Matches(NamedTuple):
    """What a search found, in the order of its scan, and what it scanned."""

    records: list[Record]
    scanned: list[tuple[int, str]]
    """The id and kind of each."""
    last: tuple[Any, ...] | None
    """Where the next page begins; None: the scan is at its end."""
