"""``history`` and ``changes``: show the versions of one entity, and the change feed."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from metastore.cli.context import Json, KindOption, SkipUnreadable, find, left_out, manager_of
from metastore.cli.output import (
    change_text,
    console,
    one_line,
    safe,
    table,
    time,
    write_json,
    write_lines,
    write_table,
)
from metastore.cli.times import when
from metastore.errors import InvalidArgument
from metastore.kinds.change import EntityChange, SetProperty
from metastore.kinds.entity import Change, Version
from metastore.store import Store

__all__ = ["register"]

_POINTERS = (
    "metadata_location",
    "previous_metadata_location",
    "current_snapshot_id",
    "current_snapshot_operation",
)
"""The properties that each commit of an Iceberg table sets (:mod:`metastore.pyiceberg.entities`)."""


def history(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Such as lake.catalog.schema.table.")],
    kind: KindOption = None,
    skip_unreadable: SkipUnreadable = False,
    json: Json = False,
) -> None:
    """Show the versions of an entity, oldest first."""
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        steps = list(manager_of(store, entity.kind).history(entity, unreadable=left_out(skip_unreadable)))
    if json:
        head = {"path": entity.path, "kind": entity.kind, "id": entity.id}
        write_json({**head, "versions": [step.to_dict() for step in steps]})
        return
    rows = table("Version", "Time (UTC)", "Action", "By", "What", right=("Version",))
    for step in steps:
        rows.add_row(
            str(step.version), time(step.time), step.action, Text(safe(step.principal or "")), Text(safe(_what(step)))
        )
    write_table(console(), rows)


def _what(step: Version) -> str:
    commit = _iceberg_commit(step)
    lines = [commit] if commit else []
    lines += [change_text(change) for change in step.changes if not (commit and _points(change))]
    if step.path_before is None or step.path_after is None or step.path_before != step.path_after:
        lines.insert(0, _paths(step))
    if step.reason is not None:
        lines.append(f"because: {step.reason}")
    return "\n".join(lines)


def _iceberg_commit(step: Version) -> str:
    """Return an Iceberg commit's operation and snapshot, such as "append, snapshot 5"; "": the step is no commit."""
    number = next(
        (c.value for c in step.changes if isinstance(c, SetProperty) and c.key == "current_snapshot_id"), None
    )
    if number is None or step.entity is None:
        return ""
    return f"{step.entity.properties.get('current_snapshot_operation', 'commit')}, snapshot {number}"


def _points(change: EntityChange) -> bool:
    """Whether a change is part of every commit of an Iceberg table: it moves the pointer to the metadata."""
    return isinstance(change, SetProperty) and change.key in _POINTERS


def _paths(step: Version) -> str:
    if step.path_before and step.path_after and step.path_before != step.path_after:
        return f"{step.path_before} -> {step.path_after}"
    return step.path_after or step.path_before or ""


def changes(
    ctx: typer.Context,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", help="The position of the last change that you have seen, or a time.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="The largest number of changes.", min=0, show_default=False)
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only changes of this kind; can be repeated.", show_default=False)
    ] = None,
    under: Annotated[
        str | None, typer.Option("--under", help="Only this entity and everything below it.", show_default=False)
    ] = None,
    under_kind: Annotated[
        str | None,
        typer.Option("--under-kind", help="The kind of --under, where several share the name.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more changes.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="End after so many seconds without a change.", show_default=False),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    json: Json = False,
) -> None:
    """Show the change feed, oldest first.

    With --json, each line is one change.
    """
    if timeout is not None and not follow:
        raise InvalidArgument("--timeout says when following ends; add --follow, or leave it out")
    out = console()
    with ctx.obj.open_to_search() as store:
        feed = store.changes(
            after=_position(store, after),
            limit=limit,
            unreadable=left_out(skip_unreadable),
            kinds=kind or None,
            under=under,
            kind=under_kind,
            follow=follow,
            timeout=timeout,
        )
        if not json:
            write_lines(out, ([(_line(change), "")] for change in feed))
            return
        for change in feed:
            write_json(change.to_dict(), lines=True)


def _position(store: Store, after: str | None) -> str | None:
    """Return the position that an option gives: for a time, the position at that time."""
    if after is None:
        return None
    try:
        time_or_position = when(after)
    except InvalidArgument:  # the feed checks the position next, and its error says what a position is
        return after
    return time_or_position if isinstance(time_or_position, str) else store.at(time_or_position).position


def _line(change: Change) -> str:
    by = f" by {change.principal}" if change.principal else ""
    why = "" if change.reason is None else f" because: {change.reason}"
    paths = _paths(change) + (f" -> {change.other_path}" if change.other_path else "")
    line = f"{change.position} {time(change.time)} {change.action} {change.kind} {paths} v{change.version}{by}{why}"
    return one_line(line)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (history, changes):
        app.command()(command)
