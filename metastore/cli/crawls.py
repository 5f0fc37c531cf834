"""``crawls``: what each crawl into a catalog did."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from metastore.cli.context import Json, Settings
from metastore.cli.output import console, grid, one_line, safe, table, write_json, write_table
from metastore.kinds.crawl import Crawl

__all__ = ["register"]

_LISTS = ("changed", "not_written", "failures", "notes")


def crawls(
    ctx: typer.Context,
    catalog: Annotated[str, typer.Argument(metavar="LAKE.CATALOG", help="The catalog that was crawled into.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One crawl, to see all of it.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many are listed.")] = 20,
    json: Json = False,
) -> None:
    """List the crawls into a catalog, the newest first, or show one."""
    settings: Settings = ctx.obj
    with settings.open() as store:
        if name is not None:
            _show(store.crawls.load(catalog, name), json)
            return
        found = store.crawls.newest(catalog, limit)
    if json:
        write_json([_json(run) for run in found])
        return
    rows = table("Crawl", "State", *_NUMBERS, right=_NUMBERS)
    rows.columns[0].no_wrap = True  # it is copied from here
    for run in found:
        values = run.values
        numbers = [values.get(key, "") for key in ("seconds", "created", "altered", "unchanged", "failures_count")]
        rows.add_row(Text(safe(run.name)), run.state, *map(str, numbers))
    write_table(console(), rows)


_NUMBERS = ("Took", "New", "Altered", "Same", "Failed")


def _json(run: Crawl) -> dict[str, Any]:
    return {"name": run.name, "state": run.state, "by": run.created_by, **run.values}


def _show(run: Crawl, json: bool) -> None:
    if json:
        write_json(_json(run))
        return
    out = console()
    values = dict(run.values)
    lists = {key: (values.pop(key, []), values.pop(f"{key}_count", 0)) for key in _LISTS}
    facts = {key: ", ".join(map(str, v)) if isinstance(v, list) else v for key, v in values.items()}
    out.print(grid({"name": run.name, "state": run.state, "by": run.created_by, **facts}))
    for key, (texts, count) in lists.items():
        if texts:
            out.print()
            out.print(Text(f"{key.replace('_', ' ')} ({count}):", style="bold"))
            for text in texts:
                out.print(Text(f"  {safe(one_line(text))}"), soft_wrap=True)
            if count > len(texts):
                out.print(f"  … and {count - len(texts)} more")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(crawls)
