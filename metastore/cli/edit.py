"""What the commands share that change one entity: trying without writing, and saying what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from metastore.cli.output import console, safe, write_json
from metastore.kinds.entity import Entity
from metastore.managers.all import Managers
from metastore.store import Store

__all__ = ["DryRun", "ExpectedVersion", "say", "trial"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, show the result, write nothing.")]
ExpectedVersion = Annotated[
    int | None,
    typer.Option("--expected-version", help="Refuse if the entity is at another version.", show_default=False),
]


class _OnlyTried(Exception):
    """Ends the transaction of a dry run, so that nothing of it is written."""


@contextmanager
def trial(store: Store, dry_run: bool) -> Iterator[Managers]:
    """Yield what the command works on: the store, or for a dry run a transaction that is thrown away."""
    if not dry_run:
        yield store
        return
    with suppress(_OnlyTried), store.transaction() as tx:
        yield tx
        raise _OnlyTried


def say(done: str, entity: Entity, dry_run: bool, json: bool) -> None:
    """Write what was done to an entity; with ``json`` the entity itself."""
    if json:
        write_json({**entity.to_dict(), "dry_run": True} if dry_run else entity.to_dict())
        return
    would = f"would be {done}; nothing is written" if dry_run else done
    version = "" if dry_run else f" (id {entity.id}, version {entity.version})"
    console().print(safe(f"{entity.kind} {entity.path}{version}: {would}"), soft_wrap=True)
