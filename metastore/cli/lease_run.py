"""``lease run``: run a command while a lease is held, and end it when the lease is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from metastore.arguments import positive_seconds
from metastore.cli.lease_source import On, open_leases
from metastore.cli.output import tell
from metastore.cli.settings import Settings
from metastore.cli.supervisor import Command, Notices, see_through
from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.errors import LeaseHeld, LeaseLost, MetastoreError
from metastore.leases.lease import Lease
from metastore.leases.leases import Leases

__all__ = ["run"]

_CANNOT_RUN = 126
_NOT_FOUND = 127
_AT_THE_END = 10.0
"""How long to check that the lease was held, and to release it (seconds). No signal ends this time earlier."""


def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lease.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARG...]", help="The command to run.")],
    ttl: Annotated[float, typer.Option("--ttl", help="How long the lease lasts without a renewal (seconds).")] = 30,
    timeout: Annotated[float, typer.Option("--timeout", help="How long to wait for the lease (seconds).")] = 0,
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="The holder's name. By default, this machine and process.", show_default=False),
    ] = None,
    renew_every: Annotated[
        float | None,
        typer.Option(
            "--renew-every", help="The time between renewals (seconds). By default, ttl / 4.", show_default=False
        ),
    ] = None,
    grace: Annotated[float, typer.Option("--grace", help="The time between SIGTERM and SIGKILL (seconds).")] = 10,
    on: On = None,
) -> None:
    """Run a command while a lease is held.

    The exit code is the command's own, or 128 + n if the signal n ended it.

    The command finds the lease in its environment: METASTORE_LEASE, METASTORE_LEASE_TOKEN, METASTORE_URL if that was
    given, and METASTORE_LEASES, the URL after --on. SIGTERM, SIGINT and SIGHUP are forwarded to it. When the lease is
    lost, the command and what it has started get SIGTERM, and SIGKILL after the grace period.

    Other exit codes: 75 another process holds the lease, 124 the lease was lost before the command ended, 126 the
    command cannot be run, 127 the command does not exist, 1 another error, in one line.
    """
    settings: Settings = ctx.obj
    positive_seconds(grace, "a grace period")
    _look_for(command[0])
    with Notices() as notices, open_leases(settings, on, makes=True) as leases:
        lease = _acquire(leases, notices, name, ttl, timeout, owner, renew_every)
        try:
            lease.keep()
            notices.forward()
            started = _start(command, lease, {"METASTORE_URL": settings.url, "METASTORE_LEASES": on})
            code = see_through(started, notices, grace, lease.is_over)
            with until(SYSTEM.monotonic() + _AT_THE_END):
                _was_held(lease, code)
        finally:
            with until(SYSTEM.monotonic() + _AT_THE_END):
                _give_back(lease)
    raise typer.Exit(code)


def _look_for(command: str) -> None:
    """Exit before the lease is acquired if the command does not exist or cannot be run."""
    if shutil.which(command) is None:
        is_there = shutil.which(command, os.F_OK) is not None or ("/" in command and Path(command).exists())
        _refuse(command, _CANNOT_RUN if is_there else _NOT_FOUND, "cannot be run" if is_there else "is not found")


def _refuse(command: str, code: int, why: str) -> None:
    tell(f"the command {command!r} {why}")
    raise typer.Exit(code)


def _acquire(
    leases: Leases,
    notices: Notices,
    name: str,
    ttl: float,
    timeout: float,
    owner: str | None,
    renew_every: float | None,
) -> Lease:
    try:
        return leases.acquire(
            name, ttl=ttl, timeout=timeout, owner=owner, renew_every=renew_every, on_lost=notices.wake
        )
    except LeaseHeld as held:
        who = held.owner or "others that have waited longer"
        times = "" if held.expires_at is None else f" until {held.expires_at:%Y-%m-%d %H:%M:%S} UTC, unless renewed"
        message = f"the lease {held.name!r} is held by {who}{times}; wait for it with --timeout SECONDS"
        raise LeaseHeld(held.name, held.owner, held.expires_at, message) from None


def _start(words: Sequence[str], lease: Lease, urls: Mapping[str, str | None]) -> Command:
    """Start the command. It gets the URLs with their passwords, so that it can commit under the lease."""
    more = {name: url for name, url in urls.items() if url is not None}
    more |= {"METASTORE_LEASE": lease.name, "METASTORE_LEASE_TOKEN": str(lease.token)}
    try:
        return Command(words, {**os.environ, **more})
    except OSError as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN
        tell(f"the command {words[0]!r} cannot be run: {error.strerror}")
        raise typer.Exit(code) from None


def _was_held(lease: Lease, code: int) -> None:
    """Raise LeaseLost if the lease was lost while the command ran: a last renewal shows this."""
    try:
        lease.renew()
    except LeaseLost:
        raise LeaseLost(
            lease.name,
            lease.token,
            f"the lease {lease.name!r} (token {lease.token}) was lost before the command ended "
            f"with exit code {code}; see: metastore lease audit",
        ) from None
    except MetastoreError:
        pass  # go on: the lease is still valid by our clock, although the database cannot say whether it was broken


def _give_back(lease: Lease) -> None:
    try:
        lease.release()
    except MetastoreError as error:
        tell(f"the lease {lease.name!r} was not released, and ends with its ttl: {error}")
