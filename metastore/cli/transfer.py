"""``export`` and ``import``: a database, or a part of it, as JSON lines."""

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

from metastore.cli.context import Json, KindOption, Settings, find
from metastore.cli.output import console, write_json
from metastore.store import restore
from metastore.transfer.outcomes import Exported, Imported

__all__ = ["register"]


class _IfExists(StrEnum):
    """What becomes of what is there, and differs."""

    ERROR = "error"
    RETURN = "return"
    REPLACE = "replace"


def export(
    ctx: typer.Context,
    path: Annotated[str | None, typer.Argument(help="What is exported, with all below it; else everything.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file; else standard output.", show_default=False),
    ] = None,
    ids: Annotated[bool, typer.Option("--ids/--no-ids", help="With ids and versions, to restore a database.")] = False,
    history: Annotated[bool, typer.Option("--history", help="With ids, all history, and what was dropped.")] = False,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Write the catalog as JSON lines, as it is at one instant; one that was stopped goes on in FILE.partial."""
    err = console(stderr=True)
    with ctx.obj.open() as store, _counting(err, quiet=json) as tell:
        target = None if path is None else find(store, path, kind)
        to = sys.stdout.buffer if output is None else output
        found = store.export_to(to, target, ids=ids, history=history, progress=tell)
    if json:
        _write_result(found, to_stderr=output is None)
        return
    out = err if output is None else console()
    if found.anew is not None:
        out.print(f"Started anew: {found.anew}.", soft_wrap=True)
    kept = f", {found.kept:,} of them from before" if found.kept else ""
    out.print(
        f"{found.lines:,} lines{kept}: {found.entities:,} entities, {found.owned:,} owned rows, "
        f"{found.operations:,} operations.",
        soft_wrap=True,
    )
    _show_hashes(out, found)


def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="What export wrote.")],
    into: Annotated[
        str | None,
        typer.Option("--into", help="The parent below which it is put; else where it was.", show_default=False),
    ] = None,
    if_exists: Annotated[
        _IfExists, typer.Option("--if-exists", help="What becomes of what is there, and differs.")
    ] = _IfExists.ERROR,
    json: Json = False,
) -> None:
    """Write what was exported. Run again after it was stopped, it goes on."""
    from metastore.transfer.calls import has_ids  # noqa: PLC0415  (only here is it needed)

    settings: Settings = ctx.obj
    with _progress(console(stderr=True), quiet=json) as tell:
        if into is None and if_exists is _IfExists.ERROR and has_ids(file):
            found = restore(settings.url, file, progress=tell)
        else:
            with settings.open() as store:
                found = store.import_from(file, into=into, if_exists=if_exists.value, progress=tell)
    if json:
        _write_result(found)
        return
    out = console()
    what = "Restored" if found.restored else "Imported"
    out.print(
        f"{what} {found.lines:,} lines: {found.written:,} entities and owned rows written, {found.left:,} left as they "
        "were.",
        soft_wrap=True,
    )
    _show_hashes(out, found)


def _show_hashes(out: Console, found: Exported | Imported) -> None:
    out.print(f"content hash  {found.hash}", soft_wrap=True)
    out.print(f"checksum      {found.checksum}", soft_wrap=True)


def _write_result(found: Exported | Imported, *, to_stderr: bool = False) -> None:
    if to_stderr:
        sys.stderr.write(json_format.dumps(dataclasses.asdict(found), indent=2) + "\n")
    else:
        write_json(dataclasses.asdict(found))


@contextmanager
def _counting(out: Console, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show how many lines there are on a terminal; elsewhere nothing."""
    if quiet or not out.is_terminal:
        yield lambda _: None
        return
    with out.status("exporting") as status:
        yield lambda lines: status.update(f"exporting: {lines:,} lines")


@contextmanager
def _progress(out: Console, *, quiet: bool) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal; elsewhere nothing."""
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
