"""``ls`` and ``show``: list entities, and show one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from metastore.cli.context import Json, KindOption, child_kinds, find, manager_of
from metastore.cli.output import Line, console, short, write_json, write_lines
from metastore.cli.past import AtOption, looked_at
from metastore.cli.unregistered import explain, unregistered_below
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS
from metastore.kinds.secret import masked
from metastore.managers.all import Managers
from metastore.names import format_path, parse_path

__all__ = ["entity_line", "register"]


def ls(
    ctx: typer.Context,
    path: Annotated[str | None, typer.Argument(help="By default, the metalakes.", show_default=False)] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="All levels below.")] = False,
    at: AtOption = None,
    json: Json = False,
) -> None:
    """List the content of a metalake, catalog or schema."""
    with ctx.obj.open() as opened:
        store = looked_at(opened, at)
        parent = None if path is None else _container(store, path)
        if json:
            below = _json(store, parent, recursive)
            write_json({"path": parent and parent.path, "children": below})
            return
        kinds = set[str]()
        write_lines(console(), _lines(store, parent, recursive, kinds))
        explain(kinds - KINDS.keys())


def _lines(store: Managers, parent: Entity | None, recursive: bool, kinds: set[str]) -> Iterator[Line]:
    """Yield the lines of a tree; add the kinds that it shows to ``kinds``."""
    if parent is not None:
        yield entity_line(parent, parent.path)
    for indent, child in _tree(store, parent, recursive, ""):
        kinds.add(child.kind)
        yield [(indent, "dim"), *entity_line(child, format_path([child.name]))]


def _container(store: Managers, path: str) -> Entity:
    """Return the container at ``path``, even if another entity shares its name."""
    names = parse_path(path)
    schema = store.schemas.load_many([names])[0] if len(names) > 2 else None
    container: Entity = schema or find(store, path, None)
    if not _is_container(container):
        raise InvalidArgument(f"{container.path} is a {container.kind} and has nothing below it; see: metastore show")
    return container


def _is_container(entity: Entity) -> bool:
    """Return whether an entity can have children; for an unregistered kind, assume so."""
    return entity.kind not in KINDS or bool(child_kinds(entity.kind))


def _children(store: Managers, parent: Entity | None) -> Iterator[Entity]:
    for kind in child_kinds(None if parent is None else parent.kind):
        yield from manager_of(store, kind).list(parent)
    if parent is not None:
        yield from unregistered_below(store, parent)


def _tree(store: Managers, parent: Entity | None, recursive: bool, indent: str) -> Iterator[tuple[str, Entity]]:
    """Yield each line's indentation and entity. Only one path of the tree is in memory, with one child read ahead."""
    children = _children(store, parent)
    child = next(children, None)
    while child is not None:
        following = next(children, None)
        branch, below = ("├── ", "│   ") if following is not None else ("└── ", "    ")
        yield (indent + branch if parent is not None or indent else ""), child
        if recursive and _is_container(child):
            yield from _tree(store, child, recursive, indent + (below if parent is not None or indent else ""))
        child = following


def entity_line(entity: Entity, name: str) -> Line:
    """Return the line that lists an entity as ``name``, with its kind, version and comment."""
    line = [(name, "bold" if _is_container(entity) else ""), (f"  {entity.kind} v{entity.version}", "dim")]
    if entity.kind not in KINDS:
        line.append(("  (kind not registered)", "yellow"))
    if not getattr(entity, "in_use", True):
        line.append(("  (disabled)", "red"))
    if entity.comment:
        line.append(("  " + short(entity.comment), "italic"))
    return line


def _json(store: Managers, parent: Entity | None, recursive: bool) -> list[dict[str, Any]]:
    shown_children = []
    for child in _children(store, parent):
        shown: dict[str, Any] = {
            name: getattr(child, name) for name in ("kind", "name", "path", "id", "version", "comment")
        }
        if child.kind not in KINDS:
            shown["registered"] = False
        if recursive and _is_container(child):
            shown["children"] = _json(store, child, recursive)
        shown_children.append(shown)
    return shown_children


def show(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")],
    version: Annotated[int | None, typer.Option("--version", help="Show this version.", show_default=False)] = None,
    at: AtOption = None,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show one entity.

    It shows the fields, owner, tags and grants, a table's columns with the statistics of their data, and a model's
    versions.
    """
    from metastore.cli.around import around  # noqa: PLC0415  (``ls`` does not need it)
    from metastore.cli.entity_view import show_around, show_entity, show_versions  # noqa: PLC0415

    with ctx.obj.open() as opened:
        store = looked_at(opened, at)
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
        beside = around(store, entity)
    if entity.kind not in KINDS and not json:
        explain([entity.kind])
    if json:
        extra: dict[str, Any] = {} if partitions is None else {"partitions": partitions, "statistics": statistics}
        extra |= beside.to_dict()
        if entity.kind == "model":
            extra["versions"] = [version.to_dict() for version in versions]
        write_json({**entity.to_dict(), **_unregistered(entity), **extra})
    else:
        show_entity(console(), entity, statistics, partitions, owner=beside.owner)
        show_versions(console(), versions)
        show_around(console(), beside)


def _unregistered(entity: Entity) -> dict[str, Any]:
    """Return the additional JSON for an entity of an unregistered kind: its stored document."""
    return {} if entity.kind in KINDS else {"registered": False, "document": json.loads(masked(entity.record.doc))}


def _show_old(entity: Entity, json: bool) -> None:
    """Write an old version of an entity. Owned rows, such as statistics, are left out: they have no history."""
    from metastore.cli.entity_view import show_entity  # noqa: PLC0415  (``ls`` does not need it)

    if json:
        write_json(entity.to_dict())
    else:
        show_entity(console(), entity, {}, None)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (ls, show):
        app.command()(command)
