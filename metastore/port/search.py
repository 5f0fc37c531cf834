"""The query of ``store.find`` to a backend: one page of a scan, all of it true at one instant."""

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
    """The entity below which the search looks; the root's id: the whole database."""
    kind: str
    """Empty: any."""
    glob: str
    folded: str
    """The same glob in lower case, for names that are compared without case."""
    parent: int
    """The direct parent; -1: any."""
    by_name: bool
    """True: scan names; False: scan the children of ``parent``."""
    after: tuple[Any, ...]
    """The scan begins after this (name, id), or, for children, after this (family, key)."""
    before: str
    """The scan ends before this name, or before this key of one family."""
    limit: int
    """How many rows are scanned."""
    family: str = ""
    """For children: scan only those in this family; empty: all families, to the end of the index."""
    fragment: str = ""
    """A text that the document of each match contains."""
    most: int = 500
    """How many matches come at most; the scan of names goes on behind the last of them."""
    parents: tuple[int, ...] = ()
    """The children of all of these are scanned, in no order; ``parent`` is -1 then, and ``after`` holds for each.

    The answer is complete only if its ``last`` is None. Otherwise the parents have more children than fit a page: ask
    for fewer parents.
    """


def matches(glob: str, name: str) -> bool:
    """Whether a name fits a glob, which knows ``*`` and ``?``."""
    pattern = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, name, re.DOTALL) is not None


class Container(NamedTuple):
    """A child of a container, to look below it."""

    id: int
    kind: str
    fold: bool


class Matches(NamedTuple):
    """The rows that a search found, in the order of its scan, and how much it scanned."""

    records: list[Record]
    scanned: list[Container]
    """The children that were scanned; a scan of names leaves this empty."""
    last: tuple[Any, ...] | None
    """Where the next page begins; None: the scan is at its end."""
    fit: int
    """How many records fit, also those that a user does not see."""


class Span(NamedTuple):
    """Two ways to search for the same entities: scan all names in a range, or scan what is below an entity."""

    begin: str
    before: str
    scope: int
    families: Sequence[str] | None
    """Count only children in these families below the entity; None: in all families."""


class Sizes(NamedTuple):
    """How many rows each way would read; a count at its limit means "that many or more"."""

    names: int
    below: int
