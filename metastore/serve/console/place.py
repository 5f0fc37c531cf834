"""The page of a place: the catalog itself, a container with its content, or any entity."""

from __future__ import annotations

from metastore.serve.console.asked import Asked, Shown, url
from metastore.serve.console.contents import children_of, contents, dropped
from metastore.serve.console.details import details
from metastore.serve.console.frame import Tab, frame
from metastore.serve.console.times import history
from metastore.serve.console.tree import tree
from metastore.serve.console.words import command

__all__ = ["place"]


def place(asked: Asked) -> Shown:
    """Return the page of the place that the query names."""
    if asked.text("path") is None:
        return _root(asked)
    entity = asked.entity()
    tab = asked.query.get("tab", "")
    offered = ["contents", "details", "history", "dropped"] if children_of(entity.kind) else ["details", "history"]
    if tab not in offered:
        tab = offered[0]
    makers = {"contents": contents, "details": details, "history": history, "dropped": dropped}
    values = {**frame(asked, entity, tab), **makers[tab](asked, entity)}
    kind = entity.kind if asked.text("kind") else None
    shown = command(
        *{
            "contents": ("ls", entity.path),
            "details": ("show", entity.path, *_option("--kind", kind)),
            "history": ("history", entity.path, *_option("--kind", kind)),
            "dropped": ("ls", entity.path),
        }[tab],
        *(_option("--at", asked.at) if tab in ("contents", "details") else ()),
    )
    return Shown(f"{tab}.html", entity.path, values, shown if tab != "dropped" else None)


def _option(name: str, value: str | None) -> tuple[str, ...]:
    return () if value is None else (name, value)


def _root(asked: Asked) -> Shown:
    tab = "dropped" if asked.query.get("tab") == "dropped" else "contents"
    tabs = [
        Tab("contents", "Contents", url("place", at=asked.at)),
        Tab("dropped", "Dropped", url("place", tab="dropped")),
    ]
    maker = dropped if tab == "dropped" else contents
    values = {"entity": None, "crumbs": [], "tree": tree(asked, None), "tabs": tabs, "tab": tab, **maker(asked, None)}
    return Shown(
        f"{tab}.html", "Catalog", values, command("ls", *_option("--at", asked.at)) if tab == "contents" else None
    )
