"""``find``: the entities below a container that have a name, a kind or properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from metastore.cli.context import Json
from metastore.cli.output import Line, console, short, write_json, write_lines
from metastore.cli.words import pairs
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS

__all__ = ["register"]


def find(
    ctx: typer.Context,
    under: Annotated[
        str | None, typer.Argument(metavar="UNDER", help="The container; by default, everything.", show_default=False)
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind.", show_default=False)] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="GLOB", help="Only these names: 'orders*', '*_v?'.", show_default=False),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            help="Only with this text in its content, owner or tags. Case is ignored.",
            show_default=False,
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--set-property", metavar="KEY=VALUE", help="Only with this property; repeatable."),
    ] = None,
    recursive: Annotated[
        bool, typer.Option("--recursive/--children", help="At any depth, or direct children only.")
    ] = True,
    json: Json = False,
) -> None:
    """Find entities by name, kind, properties and text.

    In a glob, * is any text and ? is any one character. Quote it, so that the shell does not expand it. The
    command lists the entities that fit all options. With --json, each line is one entity.
    """
    wanted = pairs(properties or (), "--set-property")
    with ctx.obj.open_to_search() as store:
        entities = store.find(under, kind=kind, name=name, properties=wanted, recursive=recursive, text=text)
        if not json:
            write_lines(console(), _rows(entities))
            return
        for entity in entities:
            write_json(entity.to_dict(), lines=True)


def _rows(entities: Iterable[Entity]) -> Iterator[Line]:
    """Yield the lines of a table as entities arrive. Its widths are known beforehand, because all kinds are."""
    width = max(map(len, KINDS))
    for number, entity in enumerate(entities):
        if not number:
            yield [(f"{'Kind':<{width}}  Version  Path", "bold")]
        comment = f"  {short(entity.comment)}" if entity.comment else ""
        yield [(f"{entity.kind:<{width}}  {entity.version:>7}  {entity.path}", ""), (comment, "italic")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(find)
