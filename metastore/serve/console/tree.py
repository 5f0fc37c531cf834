"""The tree beside a page: the way to the place, and what is beside each step of it. It reads names only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from metastore.errors import MetastoreError
from metastore.kinds.entity import Entity
from metastore.names import format_path
from metastore.serve.console.asked import Asked, url

__all__ = ["Branch", "tree"]

_MOST: Final = 25
"""How many names each level shows."""
_BELOW: Final = {None: "metalake", "metalake": "catalog", "catalog": "schema", "schema": "schema"}


@dataclass
class Branch:
    """A name in the tree. ``more``: the level has more than is shown."""

    name: str
    kind: str
    address: str
    is_open: bool = False
    is_here: bool = False
    below: list[Branch] = field(default_factory=list)
    more: str | None = None
    """The address of the rest of what is below."""


def tree(asked: Asked, entity: Entity | None) -> Branch:
    """Return the tree with the way to an entity open."""
    root = Branch("", "", url("place", at=asked.at), is_open=True, is_here=entity is None)
    nodes = () if entity is None else entity.record.chain
    branch, above = root, None
    for depth in range(len(nodes) + 1):
        kind = _BELOW.get(above)
        if kind is None:
            break
        opened = nodes[depth] if depth < len(nodes) and nodes[depth].kind == kind else None
        parent = tuple([node.name for node in nodes[:depth]])
        if above == "schema" and opened is None and depth < len(nodes):
            break
        try:
            page = asked.reader.manager(kind).names_page(parent or None, size=_MOST)
        except MetastoreError:
            break
        names = list(page.items)
        if opened is not None and opened.name not in names:
            names.append(opened.name)
        branch.below = [
            Branch(name, kind, url("place", path=format_path((*parent, name)), kind=kind, at=asked.at))
            for name in names
        ]
        branch.more = (
            None
            if page.next_token is None
            else url("place", path=format_path(parent) if parent else None, kind=above, list=kind, at=asked.at)
        )
        if opened is None:
            break
        branch = next(one for one in branch.below if one.name == opened.name)
        branch.is_open = True
        branch.is_here = depth == len(nodes) - 1
        above = kind
    return root
