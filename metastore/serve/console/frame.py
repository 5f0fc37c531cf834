"""The frame around each page of an entity: the path to it, the tree, and links to the other parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metastore.kinds.entity import Entity
from metastore.names import format_path
from metastore.serve.console.asked import Asked, url
from metastore.serve.console.contents import children_of
from metastore.serve.console.tree import tree

__all__ = ["Tab", "frame"]


@dataclass(frozen=True)
class Tab:
    """A link to another part of the same place."""

    name: str
    label: str
    address: str


def frame(asked: Asked, entity: Entity, tab: str) -> dict[str, Any]:
    """Return the values that each page of an entity shows around its own part."""
    nodes, names = entity.record.chain, entity.names
    crumbs = [
        (node.name, node.kind, url("place", path=format_path(names[: n + 1]), kind=node.kind, at=asked.at))
        for n, node in enumerate(nodes)
    ]
    named = {"path": entity.path, "kind": entity.kind}
    tabs = [Tab("contents", "Contents", url("place", **named, at=asked.at))] if children_of(entity.kind) else []
    tabs.append(Tab("details", "Details", url("place", **named, tab="details", at=asked.at)))
    tabs.append(Tab("history", "History", url("place", **named, tab="history")))
    if children_of(entity.kind):
        tabs.append(Tab("dropped", "Dropped", url("place", **named, tab="dropped")))
    tabs.append(Tab("rights", "Who may", url("rights", **named)))
    if not asked.is_restricted:
        tabs.append(Tab("changes", "What changed", url("changes", **named)))
    tabs.append(Tab("feed", "Feed", url("feed", under=entity.path, kind=entity.kind)))
    return {"entity": entity, "crumbs": crumbs, "tree": tree(asked, entity), "tabs": tabs, "tab": tab}
