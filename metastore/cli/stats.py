"""``stats``: show what the database knows about the work of all processes."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, grid, safe, table, write_json, write_table
from metastore.stats import HotEntity, LineInfo, MarkInfo, Stats

__all__ = ["register"]


def stats(ctx: typer.Context, json: Json = False) -> None:
    """Show the work of all processes.

    These are pending intents, marks of exclusive operations, the entities written most, and the lag of the feed.
    """
    with ctx.obj.open() as store:
        figures: Stats = store.stats()
    if json:
        write_json(figures.as_json())
    else:
        _show(console(), figures)


def _show(out: Console, figures: Stats) -> None:
    facts = {
        "format": figures.format,
        "pending intents": _pending(figures),
        "feed": _feed(figures),
        "oldest transaction": _seconds(figures.oldest_transaction_seconds),
        "multixact members": _share(figures.multixact_members, 2**32),
        "multixact age": _share(figures.multixact_age, 2**31),
    }
    write_table(out, grid(facts))
    if figures.marks:
        out.print(Text("\nMarks", style="bold"))
        _show_marks(out, figures.marks)
    if figures.lines:
        out.print(Text("\nTransactions in line", style="bold"))
        _show_lines(out, figures.lines)
    if figures.hot:
        out.print(Text("\nWritten most in the last hour", style="bold"))
        _show_hot(out, figures.hot)


def _pending(figures: Stats) -> str:
    oldest = _seconds(figures.oldest_pending_seconds)
    return f"{figures.pending:,}" + (f", the oldest for {oldest}" if oldest else "")


def _feed(figures: Stats) -> str:
    if figures.undecided_positions is None:
        return "not known: this role cannot see the transactions of others; grant it pg_read_all_stats"
    if not figures.undecided_positions:
        return "up to date"
    lag = _seconds(figures.feed_lag_seconds)
    return f"{figures.undecided_positions:,} changes wait behind a running transaction, the first for {lag}"


def _share(count: int | None, most: int) -> str | None:
    return None if count is None else f"{count:,} ({count / most:.1%} of {most:,})"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f} s"


def _show_marks(out: Console, marks: tuple[MarkInfo, ...]) -> None:
    rows = table("Entity", "Path", "Operation", "Held", "Expires", right=("Entity", "Held", "Expires"))
    for mark in marks:
        expires = "expired" if mark.expired else f"in {_seconds(mark.expires_seconds)}"
        rows.add_row(
            str(mark.entity_id), _path(mark), Text(safe(mark.operation_id)), _seconds(mark.held_seconds), expires
        )
    write_table(out, rows)


def _show_lines(out: Console, lines: tuple[LineInfo, ...]) -> None:
    rows = table("Waiting", "First", "Kind", "Path", right=("Waiting", "First"))
    for line in lines:
        rows.add_row(f"{line.waiting:,}", _seconds(line.oldest_seconds), line.kind or "", _path(line))
    write_table(out, rows)


def _show_hot(out: Console, hot: tuple[HotEntity, ...]) -> None:
    rows = table("Writes", "Kind", "Path", right=("Writes",))
    for entity in hot:
        rows.add_row(f"{entity.writes:,}", entity.kind or "", _path(entity))
    write_table(out, rows)


def _path(row: MarkInfo | HotEntity | LineInfo) -> Text:
    if row.path is None:
        return Text(f"(entity {row.entity_id}, purged)", style="dim")
    return Text(safe(row.path))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stats)
