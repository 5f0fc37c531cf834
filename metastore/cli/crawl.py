"""``crawl``: register the files of folders as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, one_line, safe, table, write, write_json, write_lines, write_table
from metastore.cli.settings import Settings
from metastore.errors import InvalidArgument

if TYPE_CHECKING:
    from metastore.crawl.report import CrawlReport, TableResult

__all__ = ["register"]

Tell = Callable[[str, float], None]


class Types(Enum):
    """The choices of --on-type-change."""

    report = "report"
    widen = "widen"
    fail = "fail"


class Missing(Enum):
    """The choices of --on-missing."""

    mark = "mark"
    keep = "keep"
    drop = "drop"


_MOST = 40
"""How many lines of a table's diff are shown."""


def crawl(
    ctx: typer.Context,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Folders and files.")],
    into: Annotated[str, typer.Option("--into", help="The catalog, or a schema in it: lake.catalog.")],
    master: Annotated[str, typer.Option("--master", help="The Spark cluster.")] = "local[*]",
    include: Annotated[list[str] | None, typer.Option("--include", help="Only these: '**/*.csv'.")] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Leave these out: '**/_old'.")] = None,
    on_type_change: Annotated[
        Types, typer.Option("--on-type-change", help="When a column's type in the files has changed.")
    ] = Types.report,
    on_missing: Annotated[Missing, typer.Option("--on-missing", help="When a table's files are gone.")] = Missing.mark,
    max_missing: Annotated[
        float | None,
        typer.Option(
            "--max-missing", metavar="SHARE", help="If a larger share of tables is gone, drop none.", min=0, max=1
        ),
    ] = None,
    moved_from: Annotated[
        list[str] | None, typer.Option("--moved-from", metavar="PATH", help="Where the files of tables were before.")
    ] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Also follow symbolic links that lead out of PATH.")
    ] = False,
    max_unpacked: Annotated[
        int | None,
        typer.Option(
            "--max-unpacked",
            metavar="BYTES",
            help="The most that a packed file may unpack to. By default, 64 GiB.",
            min=1,
        ),
    ] = None,
    max_ratio: Annotated[
        int | None,
        typer.Option(
            "--max-ratio", metavar="N", help="A packed file may unpack to N times its size. By default, 200.", min=1
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show what would be written.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Then read the data of changed tables.")] = False,
    fail_on_error: Annotated[
        bool, typer.Option("--fail-on-error", help="Exit with 1 if there is a failure, such as a broken file.")
    ] = False,
    json: Json = False,
) -> None:
    """Register files as tables, on Spark.

    A file that cannot be read is listed as a failure, and does not stop the crawl.
    """
    try:
        from metastore.crawl.files.limits import MAX_RATIO, MAX_UNPACKED  # noqa: PLC0415
        from metastore.crawl.interruption import Interrupted  # noqa: PLC0415  (only this command needs Spark)
        from metastore.crawl.job import crawl as start  # noqa: PLC0415
        from metastore.crawl.policies import MAX_MISSING  # noqa: PLC0415
    except ImportError:
        raise InvalidArgument("crawl needs more: pip install 'versioned-metastore[spark]'") from None

    settings: Settings = ctx.obj
    try:
        with _progress(console(stderr=True), quiet=json) as tell:
            report = start(
                paths,
                into,
                settings.url,
                master=master,
                principal=settings.principal,
                include=include or (),
                exclude=exclude or (),
                on_type_change=on_type_change.value,
                on_missing=on_missing.value,
                max_missing=MAX_MISSING if max_missing is None else max_missing,
                moved_from=moved_from or (),
                follow_links=follow_links,
                max_unpacked=max_unpacked or MAX_UNPACKED,
                max_ratio=max_ratio or MAX_RATIO,
                dry_run=dry_run,
                profile=profile,
                progress=tell,
            )
    except Interrupted as stopped:
        write(console(stderr=True), one_line(str(stopped)))
        raise
    if json:
        write_json(report.to_json())
    else:
        _write(console(), report)
    if fail_on_error and report.failures:
        raise typer.Exit(1)  # raised last: everything else is written, and the list of failures was printed


@contextmanager
def _progress(out: Console, *, quiet: bool) -> Iterator[Tell]:
    """Show a progress bar, but only on a terminal. It moves back and forth until a fraction is known."""
    if quiet or not out.is_terminal:
        yield lambda _what, _fraction: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, share: bar.update(task, description=what, completed=share, total=1.0 if share else None)


def _write(out: Console, report: CrawlReport) -> None:
    written = [row for row in report.results if row.action not in ("unchanged", "failed")]
    if written:
        write_table(out, _tables(written))
        out.print()
    changed = [row for row in written if row.changes and (report.dry_run or row.action != "created")]
    for row in changed:
        _write_diff(out, row)
    for title, notes in (
        ("Not in the catalog", [(f.path, f.reason) for f in report.failures]),
        ("Notes", [(n.path, n.text) for n in report.notes]),
    ):
        if notes:
            write(out, f"{title}:", "bold")
            write_lines(out, ([(f"  {one_line(path)}: {one_line(text)}", "")] for path, text in notes))
            out.print()
    _write_sums(out, report)


def _tables(written: Iterable[TableResult]) -> Table:
    rows = table("Table", "Action", "Version", "Files", "Rows", "Partitions", right=("Version", "Files", "Rows"))
    for row in written:
        counts = ((row.partitions_added, "+"), (row.partitions_changed, "~"), (row.partitions_removed, "-"))
        deltas = " ".join(f"{sign}{n}" for n, sign in counts if n)
        partitions = f"{row.partitions} ({deltas})" if deltas else str(row.partitions or "")
        version = "" if row.version is None else str(row.version)
        rows.add_row(Text(safe(row.path)), row.action, version, f"{row.files:,}", f"{row.rows:,}", partitions)
    return rows


def _write_diff(out: Console, row: TableResult) -> None:
    """Show the changes of a table as a diff."""
    styles = {"+": "green", "-": "red", "~": "yellow", "!": "magenta"}
    write(out, row.path, "bold")
    write_lines(out, ([(f"  {one_line(line)}", styles.get(line[0], ""))] for line in row.changes[:_MOST]))
    if len(row.changes) > _MOST:
        out.print(f"  … and {len(row.changes) - _MOST} more")
    out.print()


def _write_sums(out: Console, report: CrawlReport) -> None:
    gone = f", {report.missing} without files" if report.missing else ""
    gone += f", {report.dropped} dropped" if report.dropped else ""
    profiled = f", {report.profiled} profiled" if report.profiled else ""
    write(
        out,
        f"{report.tables} tables: {report.created} created, {report.altered} altered, {report.unchanged} unchanged"
        f"{gone}{profiled}; {len(report.failures)} failures.",
    )
    write(
        out,
        f"{report.files:,} files, {report.rows:,} rows, {report.bytes:,} bytes, {report.partitions:,} partitions "
        f"(+{report.partitions_added} ~{report.partitions_changed} -{report.partitions_removed}); "
        f"{report.skipped:,} files of other formats skipped.",
    )
    if report.dry_run:
        write(out, f"Nothing was written; {report.seconds:.1f} s.")
        return
    attempts, conflicts = report.attempts, report.conflicts
    write(out, f"{attempts} attempts, {conflicts} conflicts, {report.seconds:.1f} s.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(crawl)
