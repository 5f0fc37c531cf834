"""``secrets``: manage the keys of encrypted properties, and remove plain values from history."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from metastore.cli.context import Json
from metastore.cli.output import console, write, write_json
from metastore.secrets import keyring

__all__ = ["register"]

_BYTES = (
    "The database's files may still have bytes of it. VACUUM FULL on PostgreSQL; on SQLite run it again when it is idle"
)
secrets = typer.Typer(no_args_is_help=True, help="Keys of encrypted properties.")


@secrets.command("new-key")
def new_key(json: Json = False) -> None:
    """Print a new key for METASTORE_SECRET_KEY.

    It is stored nowhere else: without it, encrypted properties are lost.
    """
    key = keyring.new_key()
    if json:
        write_json({"key": key})
    else:
        typer.echo(key)


@secrets.command("rotate")
def rotate(
    ctx: typer.Context,
    reencrypt: Annotated[bool, typer.Option("--reencrypt", help="Make new data keys; destroy unused ones.")] = False,
    json: Json = False,
) -> None:
    """Wrap all data keys with the first key.

    METASTORE_SECRET_KEY has the new key first, then the old one. Run it again after an error.
    """
    with ctx.obj.open() as store:
        done = store.secrets.rotate(reencrypt=reencrypt)
    if json:
        write_json(dataclasses.asdict(done))
        return
    write(console(), f"{done.rewrapped} data keys wrapped again, {done.reencrypted} entities and rows encrypted again.")
    if done.destroyed:
        write(console(), f"Destroyed: data key {', '.join(map(str, done.destroyed))}.")
        if not done.erased:
            write(console(), f"{_BYTES}.")
    if done.needed:
        keys = ", ".join(map(str, done.needed))
        write(console(), f"Data key {keys} stays: something dropped or disabled needs it. Purge or enable it.")


@secrets.command("scrub")
def scrub(ctx: typer.Context, json: Json = False) -> None:
    """Remove declared secrets from history.

    It encrypts plain values first. Backups, and PostgreSQL's free pages, still contain the old values.
    """
    with ctx.obj.open() as store:
        done = store.secrets.scrub()
    if json:
        write_json(dataclasses.asdict(done))
        return
    write(console(), f"{done.reencrypted} entities and rows encrypted, {done.redacted} rows of history redacted.")
    if done.left:
        write(console(), f"{done.left} entities and rows are dropped or disabled and stay plain. Purge or enable them.")
    if not done.erased:
        write(console(), f"{_BYTES}.")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(secrets, name="secrets")
