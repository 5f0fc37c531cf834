"""Check a user's right to an operation before the user learns of any other obstacle.

A user who may not create below a container must not learn which names it has: they may be hidden. So if an attempt
finds a name taken, decide once more as if the name were free, and check the rights for that. If an attempt fails an
expectation of the caller, decide once more without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from metastore.names import format_path
from metastore.operation.request import View
from metastore.port.backend import Reads
from metastore.port.conditions import ROOT_ID
from metastore.port.records import Lookup, Resolved


def as_if_expected(view: View) -> View:
    """Return a view with the present reads of ``view`` that ignores the caller's expectations."""
    return View(view.backend, trusting=False, asking=True)


def as_if_free(view: View, path: str) -> View:
    """Return a view with the same reads in which no entity has this path."""
    return View(cast(Reads, _Untaken(view.backend, path)), trusting=False, asking=True)


class _Untaken:
    """Reads that hide the entity at one path."""

    def __init__(self, base: Reads, path: str) -> None:
        self._base = base
        self._path = path

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow paths; the hidden path leads only to its parent."""
        return [self._cut(*pair) for pair in zip(lookups, self._base.resolve(lookups), strict=True)]

    def _cut(self, lookup: Lookup, found: Resolved) -> Resolved:
        if len(found.nodes) < len(lookup.names):
            return found
        above = self._names_of(lookup.start.id) if lookup.start.id != ROOT_ID else ()
        as_they_are = (*[node.name for node in found.nodes[:-1]], lookup.names[-1])
        paths = {format_path((*above, *names)) for names in (lookup.names, as_they_are)}
        return Resolved(found.nodes[:-1], None) if self._path in paths else found

    def _names_of(self, entity_id: int) -> tuple[str, ...]:
        (known,) = self._base.by_id([entity_id])
        return () if known is None else tuple([node.name for node in known.record.chain])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)
