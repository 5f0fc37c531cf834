"""``cache``: show the processes that cache under a lease, and stop waiting for one."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.output import console, safe, table, tell, write, write_json, write_table

__all__ = ["register"]

Member = Annotated[int, typer.Argument(metavar="MEMBER", help="The member's id.")]

Force = Annotated[bool, typer.Option("--force", help="Evict it: its process has stopped.")]


def members(ctx: typer.Context, json: Json = False) -> None:
    """List the members, and those that delay writers.

    A member that is behind has not acknowledged an announced change. The change's writer waits until the member
    acknowledges it, or until the member's lease is over.
    """
    with ctx.obj.open() as store:
        registered = store.cache.members()
    if json:
        write_json({"members": registered})
        return
    rows = table(
        "Member", "Host", "Process", "Ttl", "Joined", "Renewed", "Behind", "Holds up", right=("Member", "Process")
    )
    for one in registered:
        waits = f"writers, for {one.waits:.1f} s" if one.behind else ""
        ago = (f"{one.joined:,.1f} s ago", f"{one.renewed:,.1f} s ago")
        rows.add_row(str(one.id), Text(safe(one.host)), str(one.pid), f"{one.ttl:g} s", *ago, str(one.behind), waits)
    write_table(console(), rows)


def evict(ctx: typer.Context, member: Member, force: Force = False, json: Json = False) -> None:
    """Stop waiting for a member that is down.

    It refuses to evict a member that renewed within its ttl, because that may still answer from memory. The exit code
    is 1 if the member does not exist.
    """
    with ctx.obj.open() as store:
        evicted = store.cache.evict(member, force=force)
    if json:
        write_json({"member": member, "evicted": evicted})
    elif evicted:
        write(console(), f"Writers do not wait for the member {member} any more.")
    else:
        tell(f"there is no member {member}; see: metastore cache members")
    if not evicted:
        raise typer.Exit(1)


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def register(app: typer.Typer) -> None:
    """Add the commands below ``cache``."""
    cache = typer.Typer(
        help="Show the members of the cache, and evict one.",
        invoke_without_command=True,
        callback=_show_help,
        rich_markup_mode=None,
    )
    for command, name in ((members, "members"), (evict, "evict")):
        cache.command(name)(command)
    app.add_typer(cache, name="cache")
