"""``relay``: hand the change feed to others as CloudEvents."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from metastore.cli.output import tell
from metastore.past.relay import lines_in, lines_to, post_to, relay

if TYPE_CHECKING:
    from metastore.past.relay import Deliver

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
    with ctx.obj.open() as store, _receiver(to) as deliver:
        for _ in relay(store.consumers.get(name, start=start), deliver, source=source, once=once):
            pass


def _receiver(to: str) -> AbstractContextManager[Deliver]:
    """Return what hands events over. Raises InvalidArgument, before a consumer is made."""
    if to.startswith(("http://", "https://")):
        return nullcontext(post_to(to, told=tell))
    return nullcontext(lines_to(sys.stdout)) if to == "stdout" else lines_in(to)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("relay")(relay_)
