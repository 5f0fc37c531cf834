"""``crawls``: list the crawls into a catalog, and show one."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, grid, one_line, safe, table, write, write_json, write_lines, write_table
from metastore.cli.settings import Settings
from metastore.kinds.crawl import Crawl

__all__ = ["register"]

_LISTS = ("changed", "not_written", "failures", "notes")


def crawls(
    ctx: typer.Context,
    catalog: Annotated[str, typer.Argument(metavar="LAKE.CATALOG", help="The catalog of the crawls.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this crawl.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The largest number of crawls to list.")] = 20,
    json: Json = False,
) -> None:
    """List the crawls into a catalog, or show one.

    The newest crawl comes first.
    """
    settings: Settings = ctx.obj
    with settings.open() as store:
        if name is not None:
            _show(store.crawls.load(catalog, name), json)
            return
        newest = store.crawls.newest(catalog, limit)
    if json:
        write_json([_json(run) for run in newest])
        return
    rows = table("Crawl", "State", *_NUMBERS, right=_NUMBERS)
    for run in newest:
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
    write_table(out, grid({"name": run.name, "state": run.state, "by": run.created_by, **facts}))
    for key, (texts, count) in lists.items():
        if texts:
            out.print()
            write(out, f"{key.replace('_', ' ')} ({count}):", "bold")
            write_lines(out, ([(f"  {one_line(text)}", "")] for text in texts))
            if count > len(texts):
                out.print(f"  … and {count - len(texts)} more")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(crawls)
