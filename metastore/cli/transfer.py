"""``export`` and ``import``: write a database, or a part of it, as JSON lines, and read it back."""

from __future__ import annotations

import dataclasses
import json as json_format
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from metastore.cli.back import export_system
from metastore.cli.context import Json, KindOption, SkipUnreadable, find, left_out
from metastore.cli.imports import SYSTEMS, import_system
from metastore.cli.output import console, write, write_json
from metastore.cli.settings import Settings
from metastore.errors import InvalidArgument
from metastore.store import restore
from metastore.transfer.outcomes import Exported, Imported

__all__ = ["register"]


class _IfExists(StrEnum):
    """The choices of --if-exists, for an entity that exists and differs."""

    ERROR = "error"
    RETURN = "return"
    REPLACE = "replace"


def export(
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Argument(help="The entity, with everything below it; or gravitino. By default, everything.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; else standard output.", show_default=False),
    ] = None,
    ids: Annotated[bool, typer.Option("--ids/--no-ids", help="With ids and versions, to restore a database.")] = False,
    history: Annotated[bool, typer.Option("--history", help="With ids, all history, and dropped entities.")] = False,
    kind: KindOption = None,
    skip_unreadable: SkipUnreadable = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="Gravitino's database, to fill its own tables.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Write the catalog as JSON lines.

    The lines show the catalog at one instant. An export that was stopped continues in FILE.partial. With --to it fills
    the tables of another system: export gravitino --to URL.
    """
    if to is not None:
        if output is not None or ids or history or kind is not None or skip_unreadable:
            raise InvalidArgument("--to exports everything that is live; leave out all other options except --json")
        if not export_system(ctx.obj, path, to, json):
            raise typer.Exit(1)
        return
    err = console(stderr=True)
    with ctx.obj.open() as store, _counting(err, quiet=json) as tell:
        target = None if path is None else find(store, path, kind)
        file = sys.stdout.buffer if output is None else output
        skipped = left_out(skip_unreadable)
        exported = store.export_to(file, target, ids=ids, history=history, progress=tell, unreadable=skipped)
    if json:
        _write_result(exported, to_stderr=output is None)
        return
    out = err if output is None else console()
    if exported.restarted is not None:
        write(out, f"Started again from the first line: {exported.restarted}.")
    kept = f", {exported.kept:,} of them from before" if exported.kept else ""
    write(
        out,
        f"{exported.lines:,} lines{kept}: {exported.entities:,} entities, {exported.owned:,} owned rows, "
        f"{exported.operations:,} operations.",
    )
    _show_hashes(out, exported)


def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file that export wrote; or gravitino, iceberg, spark.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="The URL of Gravitino's database, a catalog of PyIceberg, or a Spark master.",
            show_default=False,
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option("--into", help="The parent to import below. By default, the old one.", show_default=False),
    ] = None,
    if_exists: Annotated[
        _IfExists, typer.Option("--if-exists", help="What to do if an entity exists and differs.")
    ] = _IfExists.ERROR,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="A property of the catalog or of Spark. Repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Import a file that export wrote.

    To continue an import that was stopped, run it again. With --from it reads another system: gravitino, iceberg or
    spark.
    """
    settings: Settings = ctx.obj
    if source is not None:
        if settings.reason is not None or if_exists is not _IfExists.ERROR:
            raise InvalidArgument("--reason and --if-exists need a file that export wrote; leave them out with --from")
        if str(file) not in SYSTEMS:
            raise InvalidArgument(f"--from works only with {', '.join(SYSTEMS)}, not with {str(file)!r}")
        if not import_system(settings, str(file), source, into, options or [], json):
            raise typer.Exit(1)
        return
    from metastore.transfer.calls import has_ids  # noqa: PLC0415  (only this command needs it)

    whole = into is None and if_exists is _IfExists.ERROR and has_ids(file)
    if settings.reason is not None and whole:
        raise InvalidArgument("a file with ids brings its own history: leave --reason out")
    with _progress(console(stderr=True), quiet=json) as tell:
        if whole:
            imported = restore(settings.url, file, progress=tell)
        else:
            with settings.open(makes=True) as store:
                imported = store.import_from(file, into=into, if_exists=if_exists.value, progress=tell)
    if json:
        _write_result(imported)
        return
    out = console()
    what = "Restored" if imported.restored else "Imported"
    write(
        out,
        f"{what} {imported.lines:,} lines: {imported.written:,} entities and owned rows written, "
        f"{imported.left:,} left as they were.",
    )
    _show_hashes(out, imported)


def _show_hashes(out: Console, result: Exported | Imported) -> None:
    write(out, f"content hash  {result.hash}")
    write(out, f"checksum      {result.checksum}")


def _write_result(result: Exported | Imported, *, to_stderr: bool = False) -> None:
    if to_stderr:
        sys.stderr.write(json_format.dumps(dataclasses.asdict(result), indent=2) + "\n")
    else:
        write_json(dataclasses.asdict(result))


@contextmanager
def _counting(out: Console, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show the number of lines so far, but only on a terminal."""
    if quiet or not out.is_terminal:
        yield lambda _: None
        return
    with out.status("exporting") as status:
        yield lambda lines: status.update(f"exporting: {lines:,} lines")


@contextmanager
def _progress(out: Console, *, quiet: bool) -> Iterator[Callable[[float], None]]:
    """Show a progress bar, but only on a terminal."""
    if quiet or not out.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("importing", total=1.0)
        yield lambda done: bar.update(task, completed=done)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(export)
    app.command("import")(import_)
