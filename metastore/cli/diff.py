"""``diff``: show the differences between two versions of one entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from metastore.cli.context import Json, KindOption, find, manager_of
from metastore.cli.output import change_text, console, write, write_json, write_lines
from metastore.cli.past import show_differences
from metastore.cli.times import when
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Version

__all__ = ["register"]

_PER_VERSION = ("version", "scope_version", "modified_at", "modified_by")
"""Fields that always differ between two versions."""
_STYLES = {"+": "green", "-": "red", "~": "yellow"}


class Difference(NamedTuple):
    """One value that differs. ``before`` or ``after`` is None if that side has no value."""

    sign: str
    path: tuple[str, ...]
    before: Any
    after: Any


def diff(
    ctx: typer.Context,
    path: Annotated[str | None, typer.Argument(help="Such as lake.catalog.schema.table.", show_default=False)] = None,
    before: Annotated[
        int | None, typer.Argument(metavar="V1", help="The version to compare with.", show_default=False)
    ] = None,
    after: Annotated[
        int | None, typer.Argument(metavar="V2", help="By default, the newest.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Compare the tree at two positions or times: the first.", show_default=False),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="The second; by default, now.", show_default=False)] = None,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show the differences between two versions.

    With --from, show the differences between two positions or times.

    It also shows the changes between them. With --from, it compares PATH and everything below it.
    """
    if (before is not None and since is not None) or (since is None and until is not None):
        raise InvalidArgument("give two versions, or --from, which may have --to")
    if since is not None:
        with ctx.obj.open_to_search() as store:
            show_differences(
                store.diff(when(since), None if until is None else when(until), under=path, kind=kind), json
            )
        return
    if path is None or before is None:
        raise InvalidArgument("name what to compare: PATH and V1, or --from with a position or a time")
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        manager = manager_of(store, entity.kind)
        last = entity.version if after is None else after
        old, new = (manager.load(entity, version=number).to_dict() for number in (before, last))
        low, high = sorted((before, last))
        steps = [step for step in manager.history(entity) if low < step.version <= high]
    changed = list(differences(old, new))
    if json:
        shown = [{"path": list(d.path), "before": d.before, "after": d.after} for d in changed]
        head = {"path": entity.path, "kind": entity.kind, "id": entity.id, "from": before, "to": last}
        write_json({**head, "differences": shown, "versions": [step.to_dict() for step in steps]})
        return
    out = console()
    write_lines(out, ([(_line(one), _STYLES[one.sign])] for one in changed))
    if not changed:
        write(out, f"{entity.path}: versions {before} and {last} are equal")
    write_lines(out, ([(_step(step), "dim")] for step in steps))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences between two entities as JSON values, field by field. Columns are compared by their ids."""
    for key in dict.fromkeys((*old, *new)):
        if key not in _PER_VERSION:
            yield from _differ((key,), old.get(key), new.get(key))


def _differ(path: tuple[str, ...], old: Any, new: Any) -> Iterator[Difference]:
    if old == new:
        return
    old, new = _keyed(old, new), _keyed(new, old)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if list(old) != list(new) and set(old) == set(new):
            yield Difference("~", (*path, "order"), _names(old), _names(new))
        for key in dict.fromkeys((*old, *new)):
            label = _label(key, new.get(key) or old.get(key))
            yield from _differ((*path, label), old.get(key), new.get(key))
        return
    sign = "+" if old is None else "-" if new is None else "~"
    yield Difference(sign, path, old, new)


def _keyed(value: Any, other: Any) -> Any:
    """Return a list of columns as a mapping from their ids, so that a renamed column is one difference.

    An empty list counts as columns if the ``other`` one has columns.
    """
    known = value or other
    if isinstance(value, list) and known and all(isinstance(v, Mapping) and v.get("id") is not None for v in known):
        return {v["id"]: v for v in value}
    return value


def _label(key: Any, value: Any) -> str:
    return str(value.get("name", key)) if isinstance(value, Mapping) and not isinstance(key, str) else str(key)


def _names(columns: Mapping[Any, Any]) -> list[str]:
    return [_label(key, value) for key, value in columns.items()]


def _line(one: Difference) -> str:
    where = " ".join(one.path)
    if one.sign == "+":
        return f"+ {where}: {_shown(one.after)}"
    if one.sign == "-":
        return f"- {where}: {_shown(one.before)}"
    return f"~ {where}: {_shown(one.before)} -> {_shown(one.after)}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "type" in value:  # a column
        return str(value["type"]) + ("" if value.get("nullable", True) else " not null")
    return str(value)


def _step(step: Version) -> str:
    by = f" by {step.principal}" if step.principal else ""
    what = ", ".join(change_text(change) for change in step.changes)
    return f"  v{step.version} {step.action}{by}" + (f": {what}" if what else "")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diff)
