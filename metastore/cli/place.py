"""``rename``, ``drop``, ``restore``, ``purge``: where an entity stands, and whether it does."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from metastore.cli.context import Json, KindOption, find, kinds_at, manager_of
from metastore.cli.edit import DryRun, ExpectedVersion, say, trial
from metastore.cli.output import console, safe, write_json
from metastore.errors import EntityNotFound, InvalidArgument, NotEmpty
from metastore.kinds.entity import Entity
from metastore.names import format_path, parse_path
from metastore.store import Store

__all__ = ["register"]

PathArgument = Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")]
IdOption = Annotated[
    int | None, typer.Option("--id", help="Which of several dropped ones; see --list.", show_default=False)
]


def rename(
    ctx: typer.Context,
    path: PathArgument,
    to: Annotated[str, typer.Argument(help="A new name, or a full path: a move.")],
    expected_version: ExpectedVersion = None,
    kind: KindOption = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Give an entity a new name, or with a full path a new place."""
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        with trial(store, dry_run) as managers:
            found = manager_of(managers, entity.kind).rename(path, to, expected_version=expected_version)
    say(f"renamed from {entity.path}", found, dry_run, json)


def drop(
    ctx: typer.Context,
    path: PathArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="With everything below it.")] = False,
    expected_version: ExpectedVersion = None,
    kind: KindOption = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Drop an entity; restore brings it back until gc collects it. Exit code 1 if there is nothing to drop."""
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        with trial(store, dry_run) as managers:
            manager = manager_of(managers, entity.kind)
            try:
                dropped = manager.drop(path, cascade=cascade, expected_version=expected_version)
            except NotEmpty:
                message = f"{entity.path} is not empty; drop what is in it first, or give --cascade"
                raise NotEmpty(message) from None
    if not dropped:
        raise EntityNotFound(entity.path, f"{entity.path} was dropped a moment ago by somebody else")
    if json:
        write_json({"path": entity.path, "kind": entity.kind, "id": entity.id, "dropped": True, "dry_run": dry_run})
        return
    would = "would be dropped; nothing is written" if dry_run else "dropped"
    again = "" if dry_run else f"; bring it back with: metastore restore {entity.path} --id {entity.id}"
    console().print(safe(f"{entity.kind} {entity.path}: {would}{again}"), soft_wrap=True)


def restore(
    ctx: typer.Context,
    path: PathArgument,
    entity_id: IdOption = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Another path, if its own is taken.", show_default=False)
    ] = None,
    kind: KindOption = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Bring back the newest dropped entity of a path, with everything below it."""
    with ctx.obj.open() as store:
        there = dropped_at(store, path, entity_id, kind)
        with trial(store, dry_run) as managers:
            found = manager_of(managers, there.kind).restore(path, id=entity_id, to=to)
    say("restored", found, dry_run, json)


def purge(
    ctx: typer.Context,
    path: PathArgument,
    entity_id: IdOption = None,
    kind: KindOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a dropped entity for good, before gc would; it cannot be restored then."""
    with ctx.obj.open() as store:
        there = dropped_at(store, path, entity_id, kind)
        what = f"{there.kind} {there.path} (id {there.id})"
        if not yes and not (sys.stdin.isatty() and typer.confirm(safe(f"Delete {what} for good?"), err=True)):
            raise InvalidArgument(f"{what} was not deleted; give --yes to delete it for good without being asked")
        purged = manager_of(store, there.kind).purge(there)
    if json:
        write_json({"path": there.path, "kind": there.kind, "id": there.id, "purged": purged})
    else:
        console().print(
            safe(f"{there.kind} {there.path}: {'purged' if purged else 'it was gone already'}"), soft_wrap=True
        )


def dropped_at(store: Store, path: str, entity_id: int | None, kind: str | None) -> Entity:
    """Return the dropped entity that is meant: the newest of the path. Raises EntityNotFound, InvalidArgument."""
    names = parse_path(path)
    kinds = kinds_at(len(names)) if kind is None else [kind]
    found: dict[str, Entity] = {}
    for one in kinds:
        for entity in manager_of(store, one).dropped(names[:-1] or None):
            if entity.name == names[-1] and entity_id in (None, entity.id):
                found[one] = entity  # by name, then oldest first: the last is the newest
    if len(found) > 1:
        raise InvalidArgument(
            f"{format_path(names)} was a {' and a '.join(found)}; choose one: --kind {next(iter(found))}"
        )
    if not found:
        raise EntityNotFound(
            format_path(names), f"nothing dropped is known of {format_path(names)}, or gc collected it"
        )
    return next(iter(found.values()))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (rename, drop, restore, purge):
        app.command()(command)
