"""The query of ``store.find`` to a backend: one page of a scan, true at one instant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metastore.port.records import Record


@dataclass(frozen=True)
class Search:
    """The request for one page of a search: the part of an index to scan, and the condition on its rows."""

    scope: int
    """The entity below which to search; the root's id: the whole database."""
    kind: str
    """Empty: any kind."""
    glob: str
    folded: str
    """The same glob in lower case, for names that are compared without case."""
    parent: int
    """The direct parent; -1: any."""
    by_name: bool
    """True: scan names; False: scan the children of ``parent``."""
    after: tuple[Any, ...]
    """The scan begins after this (name, id); for children, after this (family, key)."""
    before: str
    """The scan ends before this name, or before this key of one family."""
    limit: int
    """How many rows to scan."""
    family: str = ""
    """For children: scan only this family; empty: all families, to the end of the index."""
    fragment: str = ""
    """A text that each match's document contains."""
    most: int = 500
    """The most matches to return; the next scan of names continues after the last of them."""
    parents: tuple[int, ...] = ()
    """Scan the children of all of these, in no order; then ``parent`` is -1, and ``after`` applies to each.

    The answer is complete only if its ``last`` is None. Otherwise the parents have more children than a page holds:
    search fewer parents.
    """


def matches(glob: str, name: str) -> bool:
    """Whether a name matches a glob with ``*`` and ``?``."""
    pattern = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, name, re.DOTALL) is not None


class Container(NamedTuple):
    """A child that is a container, so that a search can continue below it."""

    id: int
    kind: str
    fold: bool


class Matches(NamedTuple):
    """The rows that a search found, in the order of its scan, and its progress."""

    records: list[Record]
    scanned: list[Container]
    """The children that were scanned; a scan of names leaves this empty."""
    last: tuple[Any, ...] | None
    """The place at which the next page begins; None: the scan has ended."""
    fit: int
    """How many records match, including those hidden from the user."""


class Span(NamedTuple):
    """Two ways to search for the same entities: scan all names in a range, or scan everything below an entity."""

    begin: str
    before: str
    scope: int
    families: Sequence[str] | None
    """Count only children in these families below the entity; None: in all families."""


class Sizes(NamedTuple):
    """How many rows each way would read. A count that reached its limit means "that many or more"."""

    names: int
    below: int
