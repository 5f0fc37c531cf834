"""``drops``: list the drops in steps, continue abandoned ones, or roll one back."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, safe, table, tell, time, write, write_json, write_table
from metastore.cli.settings import Settings
from metastore.errors import InvalidArgument
from metastore.kinds.handlers import Handler, checked, drop_handler
from metastore.names import format_path, parse_path

__all__ = ["register"]

Named = Annotated[
    str | None,
    typer.Option(
        "--handler",
        metavar="MODULE:FUNCTION",
        help="The function that destroys the data of a drop.",
        show_default=False,
    ),
]


def ls(ctx: typer.Context, json: Json = False) -> None:
    """List the pending drops in steps.

    The path is that of the announcement. The handler is that of the process that announced the drop.
    """
    if ctx.invoked_subcommand is not None:
        if json:
            raise InvalidArgument(f"write --json behind the command: metastore drops {ctx.invoked_subcommand} --json")
        return
    settings: Settings = ctx.obj
    with settings.open() as store:
        drops = list(store.drops.pending())
    if json:
        write_json({"drops": [pending.to_dict() for pending in drops]})
        return
    rows = table("What", "Kind", "Phase", "Token", "By", "Until (UTC)", "Handler", right=("Token",))
    for pending in drops:
        who = (
            Text(safe(pending.path)),
            pending.kind,
            pending.phase,
            str(pending.token),
            Text(safe(pending.holder or "")),
        )
        rows.add_row(*who, time(pending.expires_at), Text(safe(pending.handler or "")))
    write_table(console(), rows)


def resume(ctx: typer.Context, handler: Named = None, json: Json = False) -> None:
    """Finish abandoned drops.

    Without --handler, it uses the handlers that installed packages register with ms.on_drop (the entry points
    "metastore.kinds"). It skips a drop that another process holds. The exit code is 1 if a pending drop has no handler.
    """
    settings: Settings = ctx.obj
    chosen = None if handler is None else _loaded(handler)
    with settings.open() as store:
        try:
            finished = store.drops.resume(chosen)
        except SystemExit:
            tell("a handler ended the program: its drop stays pending; see: metastore drops")
            raise typer.Exit(1) from None
        left = [one for one in store.drops.pending() if chosen is None and drop_handler(one.kind) is None]
    if json:
        write_json({"finished": finished, "without_handler": [one.path for one in left]})
    else:
        write(console(), f"{finished} {'drop' if finished == 1 else 'drops'} finished.")
    for one in left:
        tell(f"there is no handler for {one.path} (a {one.kind}); give one with --handler MODULE:FUNCTION")
    if left:
        raise typer.Exit(1)


def roll_back(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path of the drop, as drops lists it.")],
    json: Json = False,
) -> None:
    """Bring back an entity from a drop in steps.

    That is possible before the destruction begins, once the process that announced the drop no longer holds it.
    """
    settings: Settings = ctx.obj
    wanted = format_path(parse_path(path))
    with settings.open() as store:
        drops = [pending for pending in store.drops.pending() if pending.path == wanted]
        for pending in drops:
            pending.roll_back()
    if json:
        write_json({"path": wanted, "rolled_back": len(drops)})
    elif drops:
        write(console(), f"{wanted} is back.")
    if not drops:
        tell(f"nothing at {wanted} is being dropped in steps; see: metastore drops")
        raise typer.Exit(1)


def _loaded(text: str) -> Handler:
    """Return the function that MODULE:FUNCTION names. Raises InvalidArgument."""
    module, _, name = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as python -m does
    try:
        handler: Handler = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise InvalidArgument(f"the handler {text} cannot be loaded: {error}; it is MODULE:FUNCTION") from error
    return checked(handler)


def register(app: typer.Typer) -> None:
    """Add the commands below ``drops``."""
    drops = typer.Typer(
        help="List and resume drops in steps.", invoke_without_command=True, callback=ls, rich_markup_mode=None
    )
    for command, name in ((resume, "resume"), (roll_back, "roll-back")):
        drops.command(name)(command)
    app.add_typer(drops, name="drops")
