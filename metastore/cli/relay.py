"""``relay``: deliver the change feed to other systems as CloudEvents."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from metastore.cli.context import SkipUnreadable, left_out
from metastore.cli.output import tell
from metastore.errors import HistoryGone, InvalidArgument
from metastore.past.relay import lines_in, lines_to, post_to, relay

if TYPE_CHECKING:
    from metastore.past.relay import Deliver

__all__ = ["register"]

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token, RFC 9110, 5.6.2


def relay_(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The consumer, whose position the database keeps.")],
    to: Annotated[str, typer.Option("--to", help="stdout, the name of a file, or the URL of a webhook.")] = "stdout",
    start: Annotated[
        str, typer.Option("--start", help="Where a new consumer begins: now, beginning, or a position.")
    ] = "now",
    source: Annotated[str, typer.Option("--source", help="The events' source.")] = "/metastore",
    once: Annotated[bool, typer.Option("--once", help="End when there are no new changes.")] = False,
    header: Annotated[
        list[str],
        typer.Option("--header", help="A header for a webhook: NAME=env:VARIABLE."),
    ] = [],  # noqa: B006  (typer copies it)
    environment_proxies: Annotated[
        bool, typer.Option("--environment-proxies", help="Use the environment's proxies for a webhook.")
    ] = False,
    skip_unreadable: SkipUnreadable = False,
) -> None:
    """Send the change feed as CloudEvents.

    It sends each event at least once, in order, as CloudEvents 1.0.

    It continues at its last position. A webhook that does not accept an event gets it again, after longer and longer
    pauses.
    """
    receiver = _receiver(to, _headers(header), environment_proxies)  # checked before the consumer is created
    with ctx.obj.open() as store, receiver as deliver:
        consumer, skipped = store.consumers.get(name, start=start), left_out(skip_unreadable)
        try:
            for _ in relay(consumer, deliver, source=source, once=once, unreadable=skipped):
                pass
        except HistoryGone as error:
            step = (
                f"the relay has lost changes: read the tables again, then: metastore consumers {name} --reset beginning"
            )
            raise HistoryGone(error.since, f"gc has removed the history before {error.since}; {step}") from None


def _headers(given: list[str]) -> dict[str, str]:
    """Return headers with values from environment variables. Raises InvalidArgument."""
    headers = dict[str, str]()
    for text in given:
        name, _, variable = text.partition("=env:")
        value = os.environ.get(variable, "")
        if not _HEADER.fullmatch(name) or not variable:
            raise InvalidArgument(
                "write a header as NAME=env:VARIABLE, so that the list of processes does not show its value"
            )
        if not value or not value.isascii() or not value.isprintable():
            raise InvalidArgument(f"the variable {variable} of the header {name} is not set, or cannot be sent")
        headers[name] = value
    return headers


def _receiver(to: str, headers: dict[str, str], proxies: bool) -> AbstractContextManager[Deliver]:
    """Return the function that delivers events. Raises InvalidArgument."""
    if to.startswith(("http://", "https://")):
        return nullcontext(post_to(to, headers=headers, environment_proxies=proxies, told=tell))
    return nullcontext(lines_to(sys.stdout)) if to == "stdout" else lines_in(to)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("relay")(relay_)
