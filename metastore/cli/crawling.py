"""``crawl``: folders become tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from metastore.cli.context import Json, Settings
from metastore.cli.output import console, one_line, safe, table, write_json, write_table

if TYPE_CHECKING:
    from metastore.crawl.report import CrawlReport

__all__ = ["register"]

Tell = Callable[[str, float], None]


def crawl(
    ctx: typer.Context,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Folders and files.")],
    into: Annotated[str, typer.Option("--into", help="The catalog, or a schema in it: lake.catalog.")],
    master: Annotated[str, typer.Option("--master", help="The Spark cluster.")] = "local[*]",
    json: Json = False,
) -> None:
    """Register Parquet, CSV and JSON files as tables, on Spark; what cannot be read is listed."""
    from metastore.crawl.job import crawl as start  # noqa: PLC0415  (only here is it needed)

    settings: Settings = ctx.obj
    with _progress(console(stderr=True), quiet=json) as tell:
        report = start(paths, into, settings.url, master=master, principal=settings.principal, progress=tell)
    if json:
        write_json(report.to_json())
    else:
        _write(console(), report)


@contextmanager
def _progress(out: Console, *, quiet: bool) -> Iterator[Tell]:
    """Show a bar on a terminal; elsewhere nothing."""
    if quiet or not out.is_terminal:
        yield lambda _what, _fraction: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, fraction: bar.update(task, description=what, completed=fraction)


def _write(out: Console, report: CrawlReport) -> None:
    written = [row for row in report.results if row.action not in ("unchanged", "failed")]
    if written:
        rows = table("Table", "Action", "Version", "Files", "Rows", "Partitions", right=("Version", "Files", "Rows"))
        for row in written:
            counts = ((row.partitions_added, "+"), (row.partitions_changed, "~"), (row.partitions_removed, "-"))
            deltas = " ".join(f"{sign}{n}" for n, sign in counts if n)
            partitions = f"{row.partitions} ({deltas})" if deltas else str(row.partitions or "")
            version = "" if row.version is None else str(row.version)
            rows.add_row(Text(safe(row.path)), row.action, version, f"{row.files:,}", f"{row.rows:,}", partitions)
        write_table(out, rows)
        out.print()
    for title, notes in (
        ("Not in the catalog", [(f.path, f.reason) for f in report.failures]),
        ("To be noted", [(n.path, n.text) for n in report.notes]),
    ):
        if notes:
            out.print(Text(f"{title}:", style="bold"))
            for path, text in notes:
                out.print(Text(f"  {safe(one_line(path))}: {safe(one_line(text))}"), soft_wrap=True)
            out.print()
    out.print(
        f"{report.tables} tables: {report.created} created, {report.altered} altered, {report.unchanged} unchanged; "
        f"{len(report.failures)} failures.",
        soft_wrap=True,
    )
    out.print(
        f"{report.files:,} files, {report.rows:,} rows, {report.bytes:,} bytes, {report.partitions:,} partitions "
        f"(+{report.partitions_added} ~{report.partitions_changed} -{report.partitions_removed}); "
        f"{report.skipped:,} files of other formats skipped.",
        soft_wrap=True,
    )
    attempts, conflicts = report.attempts, report.conflicts
    out.print(f"{attempts} attempts, {conflicts} conflicts, {report.seconds:.1f} s.", soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(crawl)
