"""``consumers``: named readers of the feed, and how far they are behind."""

from __future__ import annotations

from typing import Annotated

import typer

from metastore.cli.context import Json
from metastore.cli.output import console, one_line, table, write_json, write_table
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.past.consumers import Consumer
from metastore.store import Store

__all__ = ["register"]


def consumers(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="By default, list all.", show_default=False)] = None,
    reset: Annotated[
        str | None,
        typer.Option("--reset", help="The new position: now, beginning, or a position.", show_default=False),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the consumer; gc no longer waits for it.")] = False,
    json: Json = False,
) -> None:
    """List the consumers of the feed.

    It shows how far each is behind: gc keeps changes that a consumer has not read.
    """
    if (remove or reset is not None) and name is None:
        raise InvalidArgument("--reset and --remove need the name of a consumer; to list them: metastore consumers")
    if remove and reset is not None:
        raise InvalidArgument("give --reset or --remove, not both")
    with ctx.obj.open() as store:
        found = store.consumers.list() if name is None else [_named(store, name)]
        if remove:
            store.consumers.drop(found.pop().name)
        elif reset is not None:
            found[0].reset(reset)
        rows = [(one.name, one.position, *one.lag()) for one in found]
    if json:
        write_json({"consumers": [dict(zip(("name", "position", "changes", "seconds"), r, strict=True)) for r in rows]})
        return
    shown = table("Name", "Position", "Changes behind", "Seconds behind", right=("Changes behind", "Seconds behind"))
    for one, position, changes, seconds in rows:
        shown.add_row(one_line(one), position, f"{changes:,}", f"{seconds:,.0f}")
    if rows:
        write_table(console(), shown)


def _named(store: Store, name: str) -> Consumer:
    for one in store.consumers.list():
        if one.name == name:
            return one
    raise EntityNotFound(name, f"there is no consumer {name}; see: metastore consumers")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(consumers)
