"""``relay``: hand the change feed to others as CloudEvents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from metastore.cli.output import tell
from metastore.past.relay import lines_to, post_to, relay

__all__ = ["register"]


def relay_(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The consumer, whose position the database keeps.")],
    to: Annotated[str, typer.Option("--to", help="stdout, the name of a file, or the URL of a webhook.")] = "stdout",
    start: Annotated[
        str, typer.Option("--start", help="Where a new consumer begins: now, beginning, or a position.")
    ] = "now",
    source: Annotated[str, typer.Option("--source", help="The events' source.")] = "/metastore",
    once: Annotated[bool, typer.Option("--once", help="End where there is nothing new.")] = False,
) -> None:
    """Hand the change feed over as CloudEvents.

    In order, each event at least once, as CloudEvents 1.0.

    It goes on where it was. A webhook that does not take an event gets it again, after longer and longer pauses.
    """
    with ctx.obj.open() as store:
        consumer = store.consumers.get(name, start=start)
        if to.startswith(("http://", "https://")):
            for _ in relay(consumer, post_to(to, told=tell), source=source, once=once):
                pass
        elif to == "stdout":
            for _ in relay(consumer, lines_to(sys.stdout), source=source, once=once):
                pass
        else:
            with Path(to).open("a", encoding="utf-8") as file:
                for _ in relay(consumer, lines_to(file), source=source, once=once):
                    pass


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("relay")(relay_)
