"""``lease``: who holds which lease, what became of it, and taking it away."""

from __future__ import annotations

from collections import deque
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from metastore.cli.context import Json
from metastore.cli.lease_run import run
from metastore.cli.lease_source import On, open_leases
from metastore.cli.output import console, grid, one_line, safe, table, tell, time, write_json, write_table
from metastore.leases.book import Holder, LeaseEvent
from metastore.leases.leases import Leases, clean_lease

__all__ = ["register"]

_NEWEST = 10
"""How many events ``show`` shows."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The lease.")]


def ls(ctx: typer.Context, on: On = None, json: Json = False) -> None:
    """List who holds which lease, by name; also those whose time is over, that nobody took over yet."""
    with open_leases(ctx.obj, on) as leases:
        found = list(leases.list())
    if json:
        write_json({"leases": found})
        return
    rows = table("Lease", "Owner", "Token", "Acquired (UTC)", "Expires (UTC)", "Waiting", right=("Token", "Waiting"))
    for holder in found:
        who = (Text(safe(holder.name)), Text(safe(holder.owner)), _number(holder.token))
        rows.add_row(*who, time(holder.acquired_at), _expires(holder), str(holder.waiting))
    write_table(console(), rows)


def show(ctx: typer.Context, name: Name, on: On = None, json: Json = False) -> None:
    """Show who holds a lease, if anybody does, and what happened to it last."""
    with open_leases(ctx.obj, on) as leases:
        name = clean_lease(name)
        holder = _holder(leases, name)
        events = list(deque(leases.audit(name), _NEWEST))
    if json:
        write_json({"name": name, "holder": holder, "events": events})
        return
    out = console()
    out.print(Text(f"lease {safe(name)}", style="bold"), soft_wrap=True)
    if holder is None:
        out.print("nobody holds it")
    else:
        write_table(out, grid(_facts(holder)))
    if events:
        out.print(Text("\nWhat happened last", style="bold"))
        for event in events:
            _write_event(out, event)


def audit(ctx: typer.Context, name: Name, on: On = None, json: Json = False) -> None:
    """Show all that happened to a lease, and the commits under it, oldest first; with --json one line for each."""
    out = console()
    with open_leases(ctx.obj, on) as leases:
        for event in leases.audit(name):
            if json:
                write_json(event, lines=True)
            else:
                _write_event(out, event)


def break_(ctx: typer.Context, name: Name, on: On = None, json: Json = False) -> None:
    """Take a lease away from whoever holds it, whose commits under it fail from now on.

    Exit code 1 if nobody holds it.
    """
    with open_leases(ctx.obj, on) as leases:
        name = clean_lease(name)
        holder = _holder(leases, name)
        broken = leases.break_(name)
    if json:
        write_json({"name": name, "broken": broken, "holder": holder if broken else None})
    elif not broken:
        tell(f"nobody holds the lease {name!r}")
    elif holder is None:  # it was acquired at this moment
        console().print(Text(f"The lease {safe(name)} is broken."), soft_wrap=True)
    else:
        number = "" if holder.token is None else f" with the token {holder.token}"
        whose = f"The lease {name} is broken: {holder.owner} had it{number}, since {time(holder.acquired_at)}."
        console().print(Text(safe(whose)), soft_wrap=True)
    if not broken:
        raise typer.Exit(1)


def _holder(leases: Leases, name: str) -> Holder | None:
    """Return who holds a lease, even if its time is over."""
    return leases.holder(name) or next((holder for holder in leases.list() if holder.name == name), None)


def _facts(holder: Holder) -> dict[str, object]:
    return {
        "owner": holder.owner,
        "token": holder.token,
        "incarnation": holder.incarnation,
        "acquired": f"{time(holder.acquired_at)} UTC",
        "expires": f"{time(holder.expires_at)} UTC"
        + (": expired, whoever asks may take it over" if holder.expired else ", unless it is renewed"),
        "waiting": holder.waiting or None,
    }


def _expires(holder: Holder) -> str:
    return "expired" if holder.expired else time(holder.expires_at)


def _number(token: int | None) -> str:
    return "" if token is None else str(token)


def _write_event(out: Console, event: LeaseEvent) -> None:
    who = "" if event.owner is None else f" {event.owner}"
    path = f" {event.path}" if event.path else ""
    by = f" by {event.principal}" if event.principal else ""
    position = f"{event.position} " if event.position else ""
    line = f"{position}{time(event.time)} {event.action} token {event.token}{who}{path}{by}"
    out.print(Text(safe(one_line(line))), soft_wrap=True)


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def register(app: typer.Typer) -> None:
    """Add the commands, below ``lease``."""
    lease = typer.Typer(
        help="Leases: who holds them, what became of them, and running a command under one.",
        invoke_without_command=True,
        callback=_show_help,
        rich_markup_mode=None,
    )
    for command, name in ((ls, "ls"), (show, "show"), (audit, "audit"), (break_, "break"), (run, "run")):
        lease.command(name)(command)
    app.add_typer(lease, name="lease")
