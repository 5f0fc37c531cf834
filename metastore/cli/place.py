"""``rename``, ``drop``, ``restore``, ``purge``: change the place of an entity, or remove it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from metastore.cli.context import Json, KindOption, find, kinds_at, manager_of
from metastore.cli.edit import DryRun, ExpectedVersion, say, trial
from metastore.cli.output import console, safe, write, write_json
from metastore.cli.settings import Settings
from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.entity import Entity
from metastore.managers.pages.dropped import dropped_at
from metastore.names import format_path, parse_path
from metastore.store import Store
from metastore.transfer.backup import is_backup, put_back
from metastore.urls import parse_url, redacted, require_file

__all__ = ["register"]

PathArgument = Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")]
IdOption = Annotated[
    int | None, typer.Option("--id", help="Which of several dropped entities, by its id.", show_default=False)
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
    """Rename an entity, or move it to another path."""
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        with trial(store, dry_run) as managers:
            renamed = manager_of(managers, entity.kind).rename(path, to, expected_version=expected_version)
    say(f"renamed from {entity.path}", renamed, dry_run, json)


def drop(
    ctx: typer.Context,
    path: PathArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="With everything below it.")] = False,
    expected_version: ExpectedVersion = None,
    kind: KindOption = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Drop an entity.

    The command restore brings it back, until gc deletes it. The exit code is 1 if there is nothing to drop.
    """
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        with trial(store, dry_run) as managers:
            manager = manager_of(managers, entity.kind)
            dropped = manager.drop(path, cascade=cascade, expected_version=expected_version)
    if not dropped:
        raise EntityNotFound(entity.path, f"{entity.path} was dropped a moment ago by another process")
    if json:
        write_json({"path": entity.path, "kind": entity.kind, "id": entity.id, "dropped": True, "dry_run": dry_run})
        return
    would = "would be dropped; nothing is written" if dry_run else "dropped"
    again = "" if dry_run else f"; bring it back with: metastore restore {entity.path} --id {entity.id}"
    write(console(), f"{entity.kind} {entity.path}: {would}{again}")


def restore(
    ctx: typer.Context,
    path: PathArgument,
    entity_id: IdOption = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Another path, if the old one is taken.", show_default=False)
    ] = None,
    kind: KindOption = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Bring back a dropped entity, or a backup.

    Of several entities with the path, it restores the newest, with everything below it.

    If PATH is a file of the command backup, it replaces the SQLite database, which no program may have open.
    For a file with the path of a dropped entity, write ./PATH.
    With --id, --to or --kind, PATH is not a file.
    """
    if (entity_id, to, kind) == (None, None, None) and is_backup(path):
        if _is_dropped(ctx.obj, path):
            raise InvalidArgument(
                f"{path} names both a file and a dropped entity: for the file write ./{path}, for the entity add --kind"
            )
        put_back(ctx.obj.url, path, dry_run=dry_run)
        shown = redacted(parse_url(ctx.obj.url))
        if json:
            write_json({"url": shown, "file": path, "put_back": not dry_run})
        else:
            would = "would be as in {}; nothing is written" if dry_run else "is as in {}."
            write(console(), f"{shown} {would.format(safe(path))}")
        return
    with ctx.obj.open() as store:
        dropped = _dropped(store, path, entity_id, kind)
        with trial(store, dry_run) as managers:
            restored = manager_of(managers, dropped.kind).restore(path, id=entity_id, to=to)
    say("restored", restored, dry_run, json)


def _is_dropped(settings: Settings, path: str) -> bool:
    """Whether a text also names a dropped entity. False if the database is missing, damaged or away."""
    if os.sep in path:
        return False
    try:
        require_file(parse_url(settings.url))
        with settings.open() as store:
            _dropped(store, path, None, None)
    except MetastoreError:
        return False
    return True


def purge(
    ctx: typer.Context,
    path: PathArgument,
    entity_id: IdOption = None,
    kind: KindOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a dropped entity for good.

    It cannot be restored. Without this command, gc deletes it later.
    """
    with ctx.obj.open() as store:
        dropped = _dropped(store, path, entity_id, kind)
        what = f"{dropped.kind} {dropped.path} (id {dropped.id})"
        if not yes and not (sys.stdin.isatty() and typer.confirm(safe(f"Delete {what} for good?"), err=True)):
            raise InvalidArgument(f"{what} was not deleted; give --yes to delete it for good without being asked")
        purged = manager_of(store, dropped.kind).purge(dropped)
    if json:
        write_json({"path": dropped.path, "kind": dropped.kind, "id": dropped.id, "purged": purged})
    else:
        write(console(), f"{dropped.kind} {dropped.path}: {'purged' if purged else 'it was gone already'}")


def _dropped(store: Store, path: str, entity_id: int | None, kind: str | None) -> Entity:
    """Return the newest dropped entity at a path. Raises EntityNotFound, InvalidArgument."""
    names = parse_path(path)
    kinds = kinds_at(len(names)) if kind is None else [kind]
    by_kind: dict[str, Entity] = {}
    for one in kinds:
        for entity in dropped_at(manager_of(store, one), names):
            if entity_id in (None, entity.id):
                by_kind[one] = entity  # the one that was dropped last replaces the others
    if len(by_kind) > 1:
        raise InvalidArgument(
            f"{format_path(names)} was a {' and a '.join(by_kind)}; choose one: --kind {next(iter(by_kind))}"
        )
    if not by_kind:
        for one in kinds:
            with suppress(EntityNotFound):
                manager_of(store, one).load(names)  # raises DropPending for an entity that is being dropped in steps
        raise EntityNotFound(
            format_path(names),
            f"there is no dropped entity at {format_path(names)}; it was never dropped, or gc deleted it",
        )
    return next(iter(by_kind.values()))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (rename, drop, restore, purge):
        app.command()(command)
