"""The query of ``store.find`` to a backend: one page of a scan, all of it true at one instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metastore.port.records import Record

__all__ = ["Container", "Matches", "Search", "Sizes", "Span"]


@dataclass(frozen=True)
class Search:
    """One page of a search: the part of an index to scan, and the condition on its rows."""

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
    """Of names, or of the keys in one family: before which it ends."""
    limit: int
    """How many rows are scanned."""
    family: str = ""
    """Of children: only those in this family; empty: any, to the end of the index."""
    fragment: str = ""
    """A text that is in the document of each match."""
    most: int = 500
    """How many matches come at most; the scan of names goes on behind the last of them."""
    parents: tuple[int, ...] = ()
    """The children of all of these are scanned, in no order; ``parent`` is -1 then, and ``after`` holds for each.

    Only an answer whose ``last`` is None is whole. Another one says that there is more than a page: ask for fewer.
    """


class Container(NamedTuple):
    """A child of a container, to look below it."""

    id: int
    kind: str
    fold: bool


class Matches(NamedTuple):
    """The rows that a search found, in the order of its scan, and how much it scanned."""

    records: list[Record]
    scanned: list[Container]
    """The children that were scanned; a scan of names does not say."""
    last: tuple[Any, ...] | None
    """Where the next page begins; None: the scan is at its end."""
    fit: int
    """How many records fit, also those that a user does not see."""


class Span(NamedTuple):
    """Two ways to look for the same: all names in a range, or what is below an entity."""

    begin: str
    before: str
    scope: int
    families: Sequence[str] | None
    """Below the entity only children in these families count; None: all."""


class Sizes(NamedTuple):
    """How many rows each way would read; at its limit it may be more."""

    names: int
    below: int
