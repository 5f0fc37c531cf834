"""``migrate``, ``backup``, ``verify``, ``gc``: upgrade, copy, check and clean up a database."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, safe, table, tell, write, write_json, write_table
from metastore.cli.settings import Settings
from metastore.cli.times import parse_duration
from metastore.clock import SYSTEM
from metastore.database import migrate as migrate_database
from metastore.database import pending_revisions
from metastore.errors import InvalidArgument
from metastore.kinds.entity import utc
from metastore.store import Store
from metastore.transfer.backup import back_up, put_back
from metastore.urls import parse_url, redacted
from metastore.verify.violations import Violation

__all__ = ["register"]


def migrate(
    ctx: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; the exit code is 1 if there is something to do.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; list what would be done.")] = False,
    to: Annotated[str, typer.Option("--to", metavar="REVISION", help="Where it ends.")] = "head",
    force: Annotated[
        bool, typer.Option("--force", help="Migrate although programs are connected that cannot write afterwards.")
    ] = False,
    json: Json = False,
) -> None:
    """Create or upgrade the tables of the database.

    Any number of processes may run it at any time, even while others write. If a migration excludes older programs
    (docs/operations.md lists these), it refuses while programs are connected, and names them.
    """
    settings: Settings = ctx.obj
    shown = redacted(parse_url(settings.url))
    if check or dry_run:
        revisions = pending_revisions(settings.url)
        _show_pending(shown, revisions, json)
        raise typer.Exit(1 if check and revisions else 0)
    migrate_database(settings.url, to=to, force=force)
    if json:
        write_json({"migrated": True, "url": shown})
    else:
        write(console(), f"{shown} is up to date.")


def _show_pending(shown: str, revisions: list[tuple[str, str]], json: bool) -> None:
    if json:
        write_json({"url": shown, "pending": [{"revision": name, "what": what} for name, what in revisions]})
    elif not revisions:
        write(console(), f"{shown} is up to date.")
    else:
        rows = table("Revision", "What")
        for name, what in revisions:
            rows.add_row(name, Text(safe(what)))
        write_table(console(), rows)


def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.", show_default=False)],
    put: Annotated[bool, typer.Option("--put-back", help="Replace the database by the backup.")] = False,
    json: Json = False,
) -> None:
    """Copy a SQLite database, or put a copy back.

    The copy is a new file, and is complete although others may write meanwhile. It can be put back only while no
    program has the database open.
    """
    settings: Settings = ctx.obj
    (put_back if put else back_up)(settings.url, file)
    shown = redacted(parse_url(settings.url))
    if json:
        write_json({"url": shown, "file": str(file), "put_back": put})
    else:
        write(
            console(), f"{shown} is as in {safe(str(file))}." if put else f"{safe(str(file))} is a backup of {shown}."
        )


def verify(
    ctx: typer.Context,
    of_backup: Annotated[
        str | None,
        typer.Option(
            "--backup",
            metavar="URL|FOLDER",
            help="Check a backup instead: put back at a URL of PostgreSQL, or exports.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Also write the result to this file.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Check every invariant, or a backup.

    The exit code is 1 if an invariant is violated, or the backup is not complete.
    """
    if of_backup is not None:
        if report is not None:
            raise InvalidArgument("--report is for a database: for a backup, keep the output of --json")
        from metastore.cli.backups import verify_backup  # noqa: PLC0415  (only this needs it)

        verify_backup(of_backup, json=json)
        return
    with ctx.obj.open() as store:
        violations = store.verify() if report is None else _reported(store, report)
    if json:
        write_json({"violations": [dataclasses.asdict(v) for v in violations]})
    elif not violations:
        console().print("No violations.")
    else:
        out = console()
        rows = table("Invariant", "Entity", "Path", "What", right=("Invariant", "Entity"))
        for v in violations:
            entity = "" if v.entity_id is None else str(v.entity_id)
            rows.add_row(str(v.invariant), entity, Text(safe(v.path or "")), Text(safe(v.message)))
        write_table(out, rows)
        out.print(f"{len(violations)} violation{'s' if len(violations) > 1 else ''}.")
    if violations:
        raise typer.Exit(1)


def _reported(store: Store, file: Path) -> list[Violation]:
    """Check the database, and write a report to a file."""
    from metastore.verify.report import Report, write_report  # noqa: PLC0415  (only this needs the module)

    if file.is_dir():  # refuse it before the check, which may take hours
        raise InvalidArgument(f"the report {file} cannot be written: it is a folder; name a file in it")
    if not file.parent.is_dir():
        raise InvalidArgument(f"the report {file} cannot be written: there is no folder {file.parent}; make it")
    started, position, began = utc(SYSTEM.micros()), store.position(back=1), SYSTEM.monotonic()
    violations = store.verify()
    took = SYSTEM.monotonic() - began
    write_report(file, Report(started, took, position, len(violations), tuple(violations)))
    return violations


def gc(
    ctx: typer.Context,
    retention: Annotated[
        str, typer.Option("--retention", help="How long a dropped entity can be restored: 7d, 12h, 30m, 0s.")
    ] = "7d",
    keep_versions: Annotated[
        int, typer.Option("--keep-versions", help="How many versions of each entity gc always keeps.")
    ] = 10,
    keep_unread: Annotated[
        str, typer.Option("--keep-unread", help="How long changes wait for consumers that have not read them.")
    ] = "30d",
    json: Json = False,
) -> None:
    """Delete old dropped entities and old history.

    These can no longer be restored.
    """
    age, unread = parse_duration(retention), parse_duration(keep_unread)
    with ctx.obj.open() as store, _alarms_told():
        removed = store.gc(retention=age, keep_versions=keep_versions, keep_unread=unread)
    if json:
        write_json(dataclasses.asdict(removed))
    else:
        write(
            console(),
            f"Removed {removed.entities} entities, {removed.versions} old versions of others, "
            f"{removed.operations} other operations.",
        )


@contextmanager
def _alarms_told() -> Iterator[None]:
    """Write each alarm about a consumer of the feed to stderr."""
    handler = logging.Handler()
    handler.emit = lambda record: tell(record.getMessage())  # type: ignore[method-assign]
    alarms = logging.getLogger("metastore.consumers")
    alarms.addHandler(handler)
    try:
        yield
    finally:
        alarms.removeHandler(handler)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (migrate, backup, verify, gc):
        app.command()(command)
