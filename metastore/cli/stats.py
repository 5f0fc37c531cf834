"""``stats``: what the database shows of everybody's work."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, grid, safe, table, write_json, write_table
from metastore.stats import HotEntity, MarkInfo, Stats

__all__ = ["register"]


def stats(ctx: typer.Context, json: Json = False) -> None:
    """Show what waits, what is marked, and what is written most, of all processes together."""
    with ctx.obj.open() as store:
        found: Stats = store.stats()
    if json:
        write_json(found.as_json())
    else:
        _show(console(), found)


def _show(out: Console, found: Stats) -> None:
    facts = {
        "format": found.format,
        "pending intents": _pending(found),
        "feed": _feed(found),
        "oldest transaction": _seconds(found.oldest_transaction_seconds),
        "multixact members": _share(found.multixact_members, 2**32),
        "multixact age": _share(found.multixact_age, 2**31),
    }
    write_table(out, grid(facts))
    if found.marks:
        out.print(Text("\nMarks", style="bold"))
        _show_marks(out, found.marks)
    if found.hot:
        out.print(Text("\nWritten most in the last hour", style="bold"))
        _show_hot(out, found.hot)


def _pending(found: Stats) -> str:
    oldest = _seconds(found.oldest_pending_seconds)
    return f"{found.pending:,}" + (f", the oldest for {oldest}" if oldest else "")


def _feed(found: Stats) -> str:
    if found.undecided_positions is None:
        return "not known: the role does not see others' transactions (pg_read_all_stats)"
    if not found.undecided_positions:
        return "up to date"
    lag = _seconds(found.feed_lag_seconds)
    return f"{found.undecided_positions:,} changes wait behind a running transaction, the first for {lag}"


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


def _show_hot(out: Console, hot: tuple[HotEntity, ...]) -> None:
    rows = table("Writes", "Kind", "Path", right=("Writes",))
    for entity in hot:
        rows.add_row(f"{entity.writes:,}", entity.kind or "", _path(entity))
    write_table(out, rows)


def _path(row: MarkInfo | HotEntity) -> Text:
    if row.path is None:
        return Text(f"(entity {row.entity_id}, purged)", style="dim")
    return Text(safe(row.path))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stats)
