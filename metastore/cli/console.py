"""``metastore console``: open the console of a database in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from metastore.cli.context import Reports
from metastore.cli.output import console as out
from metastore.cli.output import write
from metastore.cli.settings import Settings
from metastore.database import pending_revisions
from metastore.errors import InvalidArgument, MigrationNeeded
from metastore.urls import parse_url, require_file

__all__ = ["register"]


def console(
    ctx: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; by default, a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    reports: Reports = None,
) -> None:
    """Open a web page that shows a database.

    Only this machine can reach it. Other programs may write meanwhile. It writes nothing, and migrates nothing. Needs
    the extra [serve].
    """
    try:
        from metastore import serve as serving  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        raise InvalidArgument("console needs more: pip install 'versioned-metastore[serve]'") from None
    settings: Settings = ctx.obj
    require_file(parse_url(settings.url))
    if pending_revisions(settings.url):  # opening an embedded database would migrate it
        raise MigrationNeeded("the database needs a migration, and the console makes none; run: metastore migrate")

    def listens(actual: int) -> None:
        address = f"http://127.0.0.1:{actual}/console/"
        write(out(), f"The console is at {address} until Ctrl-C.")
        if browser:
            webbrowser.open(address)

    with settings.open() as store:
        app = serving.application(store, iceberg=False, gravitino=False, reports=reports)
        serving.serve_application(app, port=port, listens=listens)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(console)
