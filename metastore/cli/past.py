"""``pin`` and ``revert``, and the functions with which other commands look at the past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from metastore.cli.context import Json, KindOption
from metastore.cli.output import Line, change_text, console, one_line, table, time, write, write_json, write_lines
from metastore.cli.output import write_table as _write_table
from metastore.cli.times import when
from metastore.errors import InvalidArgument
from metastore.managers.all import Managers
from metastore.store import Store

if TYPE_CHECKING:
    from metastore.past.diff import Difference

__all__ = ["AtOption", "looked_at", "register", "show_differences"]

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at", help="Look at the past: a position, or a time: 2026-11-22T10:00, '5 minutes ago'.", show_default=False
    ),
]
_STYLES = {"created": "green", "restored": "green", "dropped": "red"}


def looked_at(store: Store, at: str | None) -> Managers:
    """Return the store, or its view of the past at ``at``."""
    return store if at is None else store.at(when(at))


def show_differences(differences: Iterator[Difference] | list[Difference], json: bool) -> None:
    """Write differences, one per line; with ``json``, one JSON value per line."""
    if json:
        for one in differences:
            write_json(one.to_dict(), lines=True)
        return
    write_lines(console(), (line for one in differences for line in _lines(one)))


def _lines(one: Difference) -> Iterator[Line]:
    where = one.path_after or one.path_before or ""
    if one.path_before and one.path_after and one.path_before != one.path_after:
        where = f"{one.path_before} -> {one.path_after}"
    versions = f"v{one.version_before or 0} -> v{one.version_after or 0}"
    words = (one.action, one.kind, where, one.other_path or "", one.value or "")
    head = one_line(" ".join(word for word in words if word))
    yield [(head, _STYLES.get(one.action, "yellow")), (f"  {versions}", "dim")]
    for change in one.changes:
        yield [(f"    {change_text(change)}", "dim")]


def pin(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="By default, list the pins.", show_default=False)] = None,
    at: AtOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the pin.")] = False,
    json: Json = False,
) -> None:
    """Name a position, so that gc keeps its state.

    Without a name, it lists the pins.

    Without --at, it is the newest position.
    """
    if (name is None or remove) and at is not None:
        raise InvalidArgument("--at needs the NAME of a new pin; to list the pins, or to remove one, leave it out")
    if name is None and remove:
        raise InvalidArgument("--remove needs the NAME of a pin; to list the pins: metastore pin")
    with ctx.obj.open() as store:
        if name is not None and remove:
            if not store.unpin(name):
                raise InvalidArgument(f"there is no pin {name}; see: metastore pin")
            pins = []
        elif name is not None:
            pins = [store.pin(name, at=None if at is None else when(at))]
        else:
            pins = store.pins()
    if json:
        write_json({"pins": [one.to_dict() for one in pins]})
        return
    rows = table("Name", "Position", "Made (UTC)", "By")
    for one in pins:
        rows.add_row(one_line(one.name), one.position, time(one.created_at), one_line(one.created_by or ""))
    if pins:
        _write_table(console(), rows)


def revert(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Such as lake.catalog.schema.")],
    to: Annotated[str, typer.Option("--to", help="A position, or a time: 2026-11-22T10:00, '5 minutes ago'.")],
    kind: KindOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    json: Json = False,
) -> None:
    """Give an entity and its content their old state.

    --to is a position or a time.

    The entity keeps its present name and place. Its history continues.
    """
    with ctx.obj.open() as store:
        reverted = store.revert(path, to=when(to), kind=kind, dry_run=dry_run)
    show_differences(reverted, json)
    if not reverted and not json:
        write(console(), f"{path} has its old state already")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (pin, revert):
        app.command()(command)
