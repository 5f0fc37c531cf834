"""``ls`` and ``show``: what is there, and what one of it looks like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from metastore.cli.context import Json, KindOption, child_kinds, find, manager_of
from metastore.cli.entity_view import show_entity, show_versions
from metastore.cli.output import console, safe, short, write_json
from metastore.cli.unregistered import explain, unregistered_below
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS
from metastore.names import format_path, parse_path
from metastore.store import Store

__all__ = ["register"]


def ls(
    ctx: typer.Context,
    path: Annotated[str | None, typer.Argument(help="Nothing: the metalakes.", show_default=False)] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="All levels below.")] = False,
    json: Json = False,
) -> None:
    """List what is below a metalake, catalog or schema, of all kinds."""
    with ctx.obj.open() as store:
        parent = None if path is None else _container(store, path)
        if json:
            below = _json(store, parent, recursive)
            write_json({"path": parent and parent.path, "children": below})
            return
        out, kinds = console(), set[str]()
        if parent is not None:
            out.print(_label(parent, parent.path), soft_wrap=True)
        for indent, child in _tree(store, parent, recursive, ""):
            out.print(Text(indent, style="dim") + _label(child, format_path([child.name])), soft_wrap=True)
            kinds.add(child.kind)
        explain(kinds - KINDS.keys())


def _container(store: Store, path: str) -> Entity:
    """Return the container at ``path``, although something else may share its name."""
    names = parse_path(path)
    schema = store.schemas.load_many([names])[0] if len(names) > 2 else None
    found: Entity = schema or find(store, path, None)
    if not _is_container(found):
        raise InvalidArgument(f"{found.path} is a {found.kind} and has nothing below it; see: metastore show")
    return found


def _is_container(entity: Entity) -> bool:
    """Whether there may be something below; a kind that is not registered may have children."""
    return entity.kind not in KINDS or bool(child_kinds(entity.kind))


def _children(store: Store, parent: Entity | None) -> Iterator[Entity]:
    for kind in child_kinds(None if parent is None else parent.kind):
        yield from manager_of(store, kind).list(parent)
    if parent is not None:
        yield from unregistered_below(store, parent)


def _tree(store: Store, parent: Entity | None, recursive: bool, indent: str) -> Iterator[tuple[str, Entity]]:
    """Yield each line's indentation and entity; only one path of the tree is held at a time."""
    children = _children(store, parent)
    child = next(children, None)
    while child is not None:
        following = next(children, None)
        branch, below = ("├── ", "│   ") if following is not None else ("└── ", "    ")
        yield (indent + branch if parent is not None or indent else ""), child
        if recursive and _is_container(child):
            yield from _tree(store, child, recursive, indent + (below if parent is not None or indent else ""))
        child = following


def _label(entity: Entity, name: str) -> Text:
    text = Text(safe(name), style="bold" if child_kinds(entity.kind) else "")
    text.append(f"  {safe(entity.kind)} v{entity.version}", style="dim")
    if entity.kind not in KINDS:
        text.append("  (kind not registered)", style="yellow")
    if not getattr(entity, "in_use", True):
        text.append("  (disabled)", style="red")
    if entity.comment:
        text.append("  " + safe(short(entity.comment)), style="italic")
    return text


def _json(store: Store, parent: Entity | None, recursive: bool) -> list[dict[str, Any]]:
    found = []
    for child in _children(store, parent):
        shown: dict[str, Any] = {
            name: getattr(child, name) for name in ("kind", "name", "path", "id", "version", "comment")
        }
        if child.kind not in KINDS:
            shown["registered"] = False
        if recursive and _is_container(child):
            shown["children"] = _json(store, child, recursive)
        found.append(shown)
    return found


def show(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")],
    version: Annotated[
        int | None, typer.Option("--version", help="As it was at this version.", show_default=False)
    ] = None,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show one entity: its fields, a table's columns with what is known of their data, a model's versions."""
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        if version is not None:
            _show_old(manager_of(store, entity.kind).load(entity, version=version), json)
            return
        statistics: dict[str, Any] = {}
        partitions: int | None = None
        if entity.kind == "table":
            statistics = {row.name: dict(row.values) for row in store.statistics.list(entity)}
            partitions = sum(1 for _ in store.partitions.names(entity))
        versions = list(store.models.versions(entity)) if entity.kind == "model" else []
    if entity.kind not in KINDS and not json:
        explain([entity.kind])
    if json:
        extra: dict[str, Any] = {} if partitions is None else {"partitions": partitions, "statistics": statistics}
        if entity.kind == "model":
            extra["versions"] = [version.to_dict() for version in versions]
        write_json({**entity.to_dict(), **_unregistered(entity), **extra})
    else:
        show_entity(console(), entity, statistics, partitions)
        show_versions(console(), versions)


def _unregistered(entity: Entity) -> dict[str, Any]:
    """Return what JSON shows of an entity whose kind this program does not know: the document as it is stored."""
    return {} if entity.kind in KINDS else {"registered": False, "document": dict(entity.doc)}


def _show_old(entity: Entity, json: bool) -> None:
    """Write an entity as history has it; what belongs to it beside its document has no history to show."""
    if json:
        write_json(entity.to_dict())
    else:
        show_entity(console(), entity, {}, None)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (ls, show):
        app.command()(command)
