"""Dry runs, and the line that reports a change. All commands that change one entity share this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from metastore.cli.output import console, write, write_json
from metastore.kinds.entity import Entity
from metastore.managers.all import Managers
from metastore.store import Store

__all__ = ["DryRun", "ExpectedVersion", "say", "trial"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, show the result, write nothing.")]
ExpectedVersion = Annotated[
    int | None,
    typer.Option("--expected-version", help="Fail if the entity has another version.", show_default=False),
]


class _OnlyTried(Exception):
    """Raised to end the transaction of a dry run before it writes."""


@contextmanager
def trial(store: Store, dry_run: bool) -> Iterator[Managers]:
    """Yield the managers to use: those of the store, or, in a dry run, those of a transaction that is rolled back."""
    if not dry_run:
        yield store
        return
    with suppress(_OnlyTried), store.transaction() as tx:
        yield tx
        raise _OnlyTried


def say(done: str, entity: Entity, dry_run: bool, json: bool) -> None:
    """Write one line about the change, or, with ``json``, the entity itself."""
    if json:
        write_json({**entity.to_dict(), "dry_run": True} if dry_run else entity.to_dict())
        return
    would = f"would be {done}; nothing is written" if dry_run else done
    version = "" if dry_run else f" (id {entity.id}, version {entity.version})"
    write(console(), f"{entity.kind} {entity.path}{version}: {would}")
