"""``lease``: list leases, show their events, and break one."""

from __future__ import annotations

from collections import deque
from typing import Annotated

import typer
from rich.text import Text

from metastore.cli.context import Json, SkipUnreadable, left_out
from metastore.cli.lease_run import run
from metastore.cli.lease_source import On, open_leases
from metastore.cli.output import (
    Line,
    console,
    grid,
    one_line,
    safe,
    table,
    tell,
    time,
    write,
    write_json,
    write_lines,
    write_table,
)
from metastore.errors import MetastoreError
from metastore.leases.book import Holder, LeaseEvent
from metastore.leases.leases import Leases, clean_lease

__all__ = ["register"]

_NEWEST = 10
"""How many events ``show`` shows."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The lease.")]


def ls(ctx: typer.Context, on: On = None, json: Json = False) -> None:
    """List the leases and their holders, by name.

    An expired lease is listed until another process takes it over. Damaged lock files are left out, and named on
    standard error; the exit code is then 1.
    """
    errors: list[MetastoreError] = []
    with open_leases(ctx.obj, on) as leases:
        holders = list(leases.list(unreadable=errors.append))
    if json:
        write_json({"leases": holders})
    else:
        _write_holders(holders)
    for error in errors:
        tell(f"left out: {error}")
    if errors:
        raise typer.Exit(1)


def _write_holders(holders: list[Holder]) -> None:
    rows = table("Lease", "Owner", "Token", "Acquired (UTC)", "Expires (UTC)", "Waiting", right=("Token", "Waiting"))
    for holder in holders:
        who = (Text(safe(holder.name)), Text(safe(holder.owner)), _number(holder.token))
        rows.add_row(*who, time(holder.acquired_at), _expires(holder), str(holder.waiting))
    write_table(console(), rows)


def show(ctx: typer.Context, name: Name, on: On = None, json: Json = False) -> None:
    """Show a lease: its holder and its last events."""
    with open_leases(ctx.obj, on) as leases:
        name = clean_lease(name)
        holder = _holder(leases, name)
        events = list(deque(leases.audit(name), _NEWEST))
    if json:
        write_json({"name": name, "holder": holder, "events": events})
        return
    out = console()
    write(out, f"lease {name}", "bold")
    if holder is None:
        out.print("nobody holds it")
    else:
        write_table(out, grid(_facts(holder)))
    if events:
        out.print(Text("\nWhat happened last", style="bold"))
        write_lines(out, map(_event_line, events))


def audit(
    ctx: typer.Context, name: Name, on: On = None, skip_unreadable: SkipUnreadable = False, json: Json = False
) -> None:
    """Show all events of a lease, oldest first.

    The commits under the lease are among them. With --json, each line is one event.
    """
    out = console()
    with open_leases(ctx.obj, on) as leases:
        events = leases.audit(name, unreadable=left_out(skip_unreadable))
        if not json:
            write_lines(out, map(_event_line, events))
            return
        for event in events:
            write_json(event, lines=True)


def break_(ctx: typer.Context, name: Name, on: On = None, json: Json = False) -> None:
    """Take a lease away from its holder.

    The holder's commits under it fail from now on. The exit code is 1 if no process holds the lease.
    """
    with open_leases(ctx.obj, on) as leases:
        name = clean_lease(name)
        holder = _holder(leases, name)
        broken = leases.break_(name)
    if json:
        write_json({"name": name, "broken": broken, "holder": holder if broken else None})
    elif not broken:
        tell(f"no process holds the lease {name!r}")
    elif holder is None:  # another process had just acquired it, so the look before the break found no holder
        write(console(), f"The lease {name} is broken.")
    else:
        number = "" if holder.token is None else f" with the token {holder.token}"
        whose = f"The lease {name} is broken: {holder.owner} had it{number}, since {time(holder.acquired_at)}."
        write(console(), whose)
    if not broken:
        raise typer.Exit(1)


def _holder(leases: Leases, name: str) -> Holder | None:
    """Return the holder of a lease, also an expired one."""
    return leases.holder(name, expired=True)


def _facts(holder: Holder) -> dict[str, object]:
    return {
        "owner": holder.owner,
        "token": holder.token,
        "incarnation": holder.incarnation,
        "acquired": f"{time(holder.acquired_at)} UTC",
        "expires": f"{time(holder.expires_at)} UTC"
        + (": expired, the next process that asks gets it" if holder.expired else ", unless it is renewed"),
        "waiting": holder.waiting or None,
    }


def _expires(holder: Holder) -> str:
    return "expired" if holder.expired else time(holder.expires_at)


def _number(token: int | None) -> str:
    return "" if token is None else str(token)


def _event_line(event: LeaseEvent) -> Line:
    who = "" if event.owner is None else f" {event.owner}"
    path = f" {event.path}" if event.path else ""
    by = f" by {event.principal}" if event.principal else ""
    position = f"{event.position} " if event.position else ""
    line = f"{position}{time(event.time)} {event.action} token {event.token}{who}{path}{by}"
    return [(one_line(line), "")]


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def register(app: typer.Typer) -> None:
    """Add the commands below ``lease``."""
    lease = typer.Typer(
        help="Show, break and run under leases.",
        invoke_without_command=True,
        callback=_show_help,
        rich_markup_mode=None,
    )
    for command, name in ((ls, "ls"), (show, "show"), (audit, "audit"), (break_, "break"), (run, "run")):
        lease.command(name)(command)
    app.add_typer(lease, name="lease")
