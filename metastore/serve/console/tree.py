"""The tree beside a page: the path to the place, the siblings of its last container, and that container's content.

It reads names only.
"""

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
_BELOW: Final = {"metalake": "catalog", "catalog": "schema", "schema": "schema"}


@dataclass
class Branch:
    """A name in the tree. ``more``: set if the level has more names than are shown."""

    name: str
    kind: str
    address: str
    is_open: bool = False
    is_here: bool = False
    below: list[Branch] = field(default_factory=list)
    more: str | None = None
    """The address of the list with the other names below."""


def tree(asked: Asked, entity: Entity | None) -> Branch:
    """Return the tree with the path to an entity opened.

    It lists the siblings of the last container, and its content.
    """
    root = Branch("", "", url("place", at=asked.at), is_open=True, is_here=entity is None)
    nodes = () if entity is None else entity.record.chain
    way = [node for node in nodes if node.kind in _BELOW]
    branch, names = root, tuple[str, ...]()
    for depth, node in enumerate(way):
        if depth == len(way) - 1:
            _list(asked, branch, names, node.kind)
        opened = next((one for one in branch.below if one.name == node.name), None)
        if opened is None:
            opened = _branch(asked, names, node.name, node.kind)
            branch.below.append(opened)
        opened.is_open = True
        opened.is_here = depth == len(nodes) - 1
        branch, names = opened, (*names, node.name)
    if len(way) == len(nodes):  # an entity that is not a container has nothing below it
        _list(asked, branch, names, _BELOW[way[-1].kind] if way else "metalake")
    return root


def _list(asked: Asked, branch: Branch, names: tuple[str, ...], kind: str) -> None:
    """Put the first names of a kind below a branch."""
    try:
        page = asked.reader.manager(kind).names_page(names or None, size=_MOST)
    except MetastoreError:
        return
    branch.below = [_branch(asked, names, name, kind) for name in page.items]
    if page.next_token is not None:
        path = format_path(names) if names else None
        branch.more = url("place", path=path, kind=branch.kind, list=kind, at=asked.at)


def _branch(asked: Asked, above: tuple[str, ...], name: str, kind: str) -> Branch:
    return Branch(name, kind, url("place", path=format_path((*above, name)), kind=kind, at=asked.at))
