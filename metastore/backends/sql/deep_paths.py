"""Resolve paths that are deeper than one statement can join, piece by piece.

The pieces are read at different instants. So at the end, one statement checks all guards on the path again: if they
still hold, the whole path was true at that instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metastore.port.backend import Guards
from metastore.port.records import Lookup, Node, Resolved

DEEP = 40
"""The longest path that is resolved in one statement; SQLite joins at most 64 tables."""


Resolve = Callable[[Sequence[Lookup]], list[Resolved]]


def resolve_deep(resolve: Resolve, hold: Callable[[Guards], bool], lookup: Lookup) -> Resolved:
    """Return the result of a backend's ``resolve`` for a path of any length."""
    while True:
        resolved = _walk(resolve, lookup)
        guards = [(n.id, n.scope_version) for n in resolved.nodes]
        if not guards or hold(guards):
            return resolved


def _walk(resolve: Resolve, lookup: Lookup) -> Resolved:
    nodes: list[Node] = []
    start, record = lookup.start, None
    for at in range(0, len(lookup.names), DEEP):
        piece = Lookup(lookup.families[at : at + DEEP], lookup.names[at : at + DEEP], start)
        (resolved,) = resolve([piece])
        nodes += resolved.nodes
        record = resolved.record
        if record is None:
            break
        start = nodes[-1]
    return Resolved(tuple(nodes), record and record._replace(chain=tuple(nodes)))
