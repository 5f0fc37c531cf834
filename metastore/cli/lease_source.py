"""Open the leases that a command uses: in the database, or in object storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from metastore.cli.settings import Settings
from metastore.leases.leases import Leases
from metastore.leases.objects.leases import ObjectStoreLeases

__all__ = ["On", "open_leases"]

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="URL",
        help="Use leases on object storage, such as s3://bucket/locks.",
        show_default=False,
    ),
]


@contextmanager
def open_leases(settings: Settings, on: str | None, *, makes: bool = False) -> Iterator[Leases]:
    """Yield the leases. If a database is given, too, leases in object storage fence its commits.

    ``makes``: create a missing SQLite file.
    """
    if on is not None and settings.url is None and not os.environ.get("METASTORE_URL"):
        yield ObjectStoreLeases(on)
        return
    with settings.open(makes=makes) as store:
        yield store.leases if on is None else ObjectStoreLeases(on, store=store)
