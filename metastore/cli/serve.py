"""``metastore serve``: the store over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from metastore.cli.context import Settings
from metastore.cli.output import console, write
from metastore.errors import InvalidArgument

__all__ = ["register"]


def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option("--host", help="The address to listen on: of the loopback interface.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on.")] = 8181,
    warehouse: Annotated[
        list[str] | None,
        typer.Option(
            "--warehouse",
            metavar="METALAKE.CATALOG=PLACE",
            help="An Iceberg catalog and the folder or bucket of its tables; made if missing. Repeatable.",
            show_default=False,
        ),
    ] = None,
    iceberg: Annotated[bool, typer.Option("--iceberg", help="Speak the Iceberg REST protocol, below /iceberg.")] = True,
    gravitino: Annotated[bool, typer.Option("--gravitino", help="Speak Gravitino's REST API, below /api.")] = True,
) -> None:
    """Serve the store over HTTP until SIGTERM.

    Needs the extra [serve]. Clients name the user by Authorization: Basic; nothing checks a password, so that it
    listens on loopback only.
    """
    try:
        from metastore.serve import application, serve_application  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        raise InvalidArgument("serve needs more: pip install 'versioned-metastore[serve]'") from None
    settings: Settings = ctx.obj
    places = dict(_place(text) for text in warehouse or [])
    with settings.open() as store:
        app = application(store, warehouses=places)
        spoken = [path for path, wanted in (("/iceberg", iceberg), ("/api", gravitino)) if wanted]
        write(console(), f"Serving http://{host}:{port} ({', '.join(spoken)}) until SIGTERM.")
        serve_application(app, host=host, port=port)


def _place(text: str) -> tuple[str, str]:
    name, _, place = text.partition("=")
    if not name or not place:
        raise InvalidArgument(f"a warehouse is written metalake.catalog=place, not {text!r}")
    return name, place


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(serve)
