"""``alter``: change one entity, merged with what others do meanwhile."""

from __future__ import annotations

from typing import Annotated

import typer

from metastore.cli.context import Json, KindOption, find, manager_of
from metastore.cli.edit import DryRun, ExpectedVersion, say, trial
from metastore.cli.words import json_changes, pair, pairs, typed
from metastore.errors import InvalidArgument
from metastore.kinds.change import EntityChange, RemoveProperty, SetComment, SetProperty
from metastore.kinds.table.changes import AddColumn, DropColumn, RenameColumn, RetypeColumn, SetFormat, SetLocation
from metastore.names import parse_path

__all__ = ["register"]

Texts = Annotated[list[str] | None, typer.Option(show_default=False)]


def alter(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")],
    properties: Annotated[
        list[str] | None, typer.Option("--set", help="Set a property, KEY=VALUE; can be repeated.", show_default=False)
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Remove a property; can be repeated.", show_default=False)
    ] = None,
    comment: Annotated[
        str | None, typer.Option("--comment", help="Set the comment; an empty one removes it.", show_default=False)
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option("--add-column", help="NAME:TYPE; can be repeated.", show_default=False)
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop-column", help="NAME; can be repeated.", show_default=False)
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename-column", help="OLD:NEW; can be repeated.", show_default=False)
    ] = None,
    retype: Annotated[
        list[str] | None, typer.Option("--retype-column", help="NAME:TYPE; can be repeated.", show_default=False)
    ] = None,
    location: Annotated[
        str | None, typer.Option("--location", help="The place of the data.", show_default=False)
    ] = None,
    data_format: Annotated[
        str | None, typer.Option("--format", help="The format of the data.", show_default=False)
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option("--changes", help='Any changes, as JSON: [{"change": "SetComment", …}].', show_default=False),
    ] = None,
    expected_version: ExpectedVersion = None,
    kind: KindOption = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change an entity.

    Example: metastore alter lake.sales.shop.orders --set owner=ann --add-column city:string
    """
    wanted: list[EntityChange] = [] if changes is None else json_changes(changes)
    wanted += [SetProperty(key, value) for key, value in pairs(properties or (), "--set").items()]
    wanted += [RemoveProperty(key) for key in unset or ()]
    wanted += [] if comment is None else [SetComment(comment or None)]
    wanted += [DropColumn(parse_path(name)) for name in drop or ()]
    wanted += [
        RenameColumn(parse_path(old), new) for old, new in (pair(t, "--rename-column", "OLD:NEW") for t in rename or ())
    ]
    wanted += [RetypeColumn(*typed(text, "--retype-column")) for text in retype or ()]
    wanted += [AddColumn(*typed(text, "--add-column")) for text in add or ()]
    wanted += [] if location is None else [SetLocation(location or None)]
    wanted += [] if data_format is None else [SetFormat(data_format or None)]
    if not wanted:
        raise InvalidArgument("there is nothing to change; give --set, --comment, --add-column or another option")
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        with trial(store, dry_run) as managers:
            # by path, not by the loaded entity, so that the path is resolved when the change happens
            manager = manager_of(managers, entity.kind)
            altered = manager.alter(path, *wanted, expected_version=expected_version)
    say("unchanged" if altered.version == entity.version else "altered", altered, dry_run, json)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(alter)
