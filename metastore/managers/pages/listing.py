"""List the children of a parent page by page, each page true at one instant.

A page is read together with the guards of the parent's path. If a guard has changed, the parent is looked up again. If
the parent is still at its path, the listing continues. If the parent was renamed, moved or dropped, the listing raises
EntityNotFound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from metastore.arguments import shown
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.families import parent_kind
from metastore.kinds.kind import Kind
from metastore.kinds.registry import kind_named
from metastore.managers.target import Target, find, in_hand
from metastore.names import parse_path
from metastore.operation.guards import guards_of
from metastore.operation.request import View
from metastore.port.backend import Guards, Reads
from metastore.port.records import ROOT, Node, RowPage, path_of

T = TypeVar("T")
ReadRows = Callable[[Node, T | None, Guards], tuple[RowPage[T], int]]
"""A function from (the listed node, the last row so far, guards) to a page, and the size of a full page."""


def parent_nodes(view: View, kind: Kind, parent: Target | None) -> tuple[Node, ...]:
    """Return the nodes of ``parent`` (None: the root), below which ``kind`` is listed."""
    if parent is None:
        if kind.parents:
            raise InvalidArgument(f"a {kind.name} is below a {' or a '.join(kind.parents)}; name it")
        return ()
    if isinstance(parent, Entity):
        above = kind_named(parent.kind) if parent.kind in kind.parents else None
    else:
        above = parent_kind(kind, len(parse_path(parent)))
    if above is None:
        allowed = " or a ".join(kind.parents) or "root"
        raise InvalidArgument(f"a {kind.name} is below a {allowed}; {shown(parent)} is not one")
    return find(view, above, parent).chain


def pages(backend: Reads, kind: Kind, parent: Target | None, read: ReadRows[T]) -> Iterator[tuple[tuple[Node, ...], T]]:
    """Yield (the parent's nodes, row) for each row below ``parent`` that ``read`` returns."""
    return _pages(backend, parent, lambda view: parent_nodes(view, kind, parent), read)


def owner_pages(backend: Reads, kind: Kind, owner: Target, read: ReadRows[T]) -> Iterator[tuple[tuple[Node, ...], T]]:
    """Yield (the owner's nodes, row) for each owned row that ``read`` returns."""
    return _pages(backend, owner, lambda view: find(view, kind, owner).chain, read)


def _pages(
    backend: Reads, target: Target | None, nodes_of: Callable[[View], tuple[Node, ...]], read: ReadRows[T]
) -> Iterator[tuple[tuple[Node, ...], T]]:
    nodes = first = nodes_of(View(backend, trusting=True))
    last: T | None = None
    while True:
        guards = [(g.id, g.scope_version) for g in guards_of(nodes)]
        page, full = in_hand(backend, target, partial(read, nodes[-1] if nodes else ROOT, last, guards))
        if not page.held:
            nodes = nodes_of(View(backend, trusting=False))
            if last is not None and [(n.id, n.name) for n in nodes] != [(n.id, n.name) for n in first]:
                path = path_of(first)
                raise EntityNotFound(path, f"{path} was renamed, moved or dropped while it was listed; list again")
            first = nodes
            continue
        for row in page.rows:
            yield nodes, row
        if len(page.rows) < full:
            return
        last = page.rows[-1]
