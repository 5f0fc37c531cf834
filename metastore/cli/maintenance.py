"""``migrate``, ``verify``, ``gc``: what keeps a database in order."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from metastore.cli.context import Json, Settings
from metastore.cli.output import console, safe, table, write_json, write_table
from metastore.errors import InvalidArgument
from metastore.store import migrate as migrate_database
from metastore.urls import parse_url, redacted

__all__ = ["parse_duration", "register"]

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def parse_duration(text: str) -> timedelta:
    """Return the duration that ``7d``, ``12h``, ``30m`` or ``0s`` stands for. Raises InvalidArgument."""
    found = re.fullmatch(r"(\d{1,9})([dhms])", text.strip())
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        pass
    raise InvalidArgument(f"{text!r} is no duration; write a number and d, h, m or s, such as 7d, 12h, 30m, 0s")


def migrate(ctx: typer.Context, json: Json = False) -> None:
    """Make or upgrade the schema; safe to run at any time, everywhere at once."""
    settings: Settings = ctx.obj
    migrate_database(settings.url)
    shown = redacted(parse_url(settings.url))
    if json:
        write_json({"migrated": True, "url": shown})
    else:
        console().print(f"{safe(shown)} is up to date.", soft_wrap=True)


def verify(ctx: typer.Context, json: Json = False) -> None:
    """Check every invariant that the content can show; exit code 1 if one is violated."""
    with ctx.obj.open() as store:
        found = store.verify()
    if json:
        write_json({"violations": [dataclasses.asdict(v) for v in found]})
    elif not found:
        console().print("No violations.")
    else:
        out = console()
        rows = table("Invariant", "Entity", "Path", "What", right=("Invariant", "Entity"))
        for v in found:
            entity = "" if v.entity_id is None else str(v.entity_id)
            rows.add_row(str(v.invariant), entity, Text(safe(v.path or "")), Text(safe(v.message)))
        write_table(out, rows)
        out.print(f"{len(found)} violation{'s' if len(found) > 1 else ''}.")
    if found:
        raise typer.Exit(1)


def gc(
    ctx: typer.Context,
    retention: Annotated[
        str, typer.Option("--retention", help="How long what was dropped can be restored: 7d, 12h, 30m, 0s.")
    ] = "7d",
    keep_versions: Annotated[
        int, typer.Option("--keep-versions", help="How many versions of each entity stay, whatever their age.")
    ] = 10,
    json: Json = False,
) -> None:
    """Remove for good what was dropped long ago, and old history."""
    age = parse_duration(retention)
    with ctx.obj.open() as store:
        found = store.gc(retention=age, keep_versions=keep_versions)
    if json:
        write_json(dataclasses.asdict(found))
    else:
        console().print(
            f"Removed {found.entities} entities, {found.versions} old versions of others, "
            f"{found.operations} other operations.",
            soft_wrap=True,
        )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (migrate, verify, gc):
        app.command()(command)
