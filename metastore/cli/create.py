"""``create``: create one entity of any kind."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from metastore.cli.context import Json
from metastore.cli.edit import DryRun, say, trial
from metastore.cli.words import column, json_value, pair, pairs
from metastore.errors import InvalidArgument
from metastore.kinds.view.document import SQL

__all__ = ["register"]


def create(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(help="metalake, catalog, schema, table, view, fileset, topic, model …")],
    path: Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")],
    comment: Annotated[str | None, typer.Option("--comment", help="The comment.", show_default=False)] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--set", help="A property, KEY=VALUE; can be repeated.", show_default=False)
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", help="NAME:TYPE, or 'NAME:TYPE not null'; can be repeated.", show_default=False),
    ] = None,
    sql: Annotated[
        list[str] | None, typer.Option("--sql", help="A view's query, DIALECT=TEXT.", show_default=False)
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", help="Any other field of the kind, NAME=VALUE or NAME=JSON.", show_default=False),
    ] = None,
    parents: Annotated[bool, typer.Option("--parents", help="Create missing schemas above it.")] = False,
    if_exists: Annotated[str, typer.Option("--if-exists", help="error, return or replace.")] = "error",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Create an entity of any kind.

    Example: metastore create table lake.sales.shop.orders --column id:long
    """
    values: dict[str, Any] = {name: json_value(value) for name, value in pairs(fields or (), "--field").items()}
    if columns:
        values["columns"] = [column(text, "--column") for text in columns]
    if sql:
        values["representations"] = [SQL(*pair(text, "--sql", "DIALECT=TEXT")) for text in sql]
    options: dict[str, Any] = {"comment": comment, "properties": pairs(properties or (), "--set"), "parents": parents}
    with ctx.obj.open(makes=not dry_run) as store, trial(store, dry_run) as managers:
        try:
            entity = managers.manager(kind).create(path, if_exists=if_exists, **options, **values)
        except TypeError as error:  # this kind's create does not take these arguments
            raise _does_not_fit(kind, managers.manager(kind).create, values, error) from None
    say("created", entity, dry_run, json)


def _does_not_fit(kind: str, create: Any, values: dict[str, Any], error: TypeError) -> InvalidArgument:
    """Return the error for fields that the create of a kind does not take, or that it needs but did not get."""
    needed = [
        name
        for name, parameter in inspect.signature(create).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty and name not in values
    ]
    if needed:
        words = {"representations": "--sql DIALECT=TEXT"}
        options = " ".join([words.get(name, f"--field {name}=VALUE") for name in needed])
        return InvalidArgument(f"a {kind} needs {' and '.join(needed)}; add: {options}")
    return InvalidArgument(f"--field, --column or --sql does not fit a {kind}: {error}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(create)
