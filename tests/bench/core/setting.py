"""What the measurements share: the servers, a small lake, and how much is measured."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest.mock import patch
from uuid import UUID

import psycopg
from rich.console import Console

import metastore as ms
from metastore.backends.postgres.connect import Pool
from metastore.clock import SYSTEM
from metastore.kinds.registry import KINDS
from metastore.store import Store
from metastore.urls import parse_url
from tests.bench.figures import Figures
from tests.servers.postgres import Databases, PostgresServer

__all__ = ["CATALOG", "COLUMNS", "Setting", "captured", "connect", "document", "fill_lake", "new_lake", "operation_ids"]

CATALOG = "lake.sales"
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
COMMON = {
    "shared_buffers": "1GB",
    "checkpoint_timeout": "30min",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",  # until a connection asks for it
}
TYPES = ("long", "string", "timestamp(6)", "decimal(12,2)", "int", "double", "date", "boolean", "varchar(40)", "binary")
COLUMNS = tuple(ms.Column(f"column_{n}", type_) for n, type_ in enumerate(TYPES))
"""The columns of every table that is measured."""


@dataclass
class Setting:
    """One run: its servers start when they are first needed."""

    figures: Figures
    console: Console
    quick: bool
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def runs(self) -> int:
        """How many values the median of a figure is taken of."""
        return 3 if self.quick else 9

    def count(self, full: int) -> int:
        """How much is done for one value."""
        return max(1, full // 5) if self.quick else full

    @cached_property
    def durable(self) -> PostgresServer:
        """A server that survives the loss of power: fsync, synchronous_commit and full pages are on."""
        return self.closing.enter_context(PostgresServer(settings={**COMMON, **DURABLE}))

    @cached_property
    def nosync(self) -> PostgresServer:
        """A server that waits for no disk: what is left is what programs cost."""
        return self.closing.enter_context(PostgresServer(settings=COMMON))


def new_lake(server: Databases, *schemas: str) -> str:
    """Make a migrated database with a metalake, a catalog and schemas; return its URL."""
    url = server.create_database()
    ms.migrate(url)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
    with ms.open(url, principal="bench") as store:
        fill_lake(store, *schemas)
    return url


def fill_lake(store: Store, *schemas: str) -> None:
    """Make the metalake, the catalog and schemas below it."""
    store.metalakes.create("lake")
    store.catalogs.create(CATALOG, type="relational")
    for name in schemas:
        store.schemas.create(f"{CATALOG}.{name}")


def connect(url: str) -> psycopg.Connection[Any]:
    """Open a connection exactly as the library opens its own."""
    return Pool(parse_url(url), 30.0)._connect()


@contextlib.contextmanager
def captured() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Collect the statements that are sent alone meanwhile: (text, parameters)."""
    sent: list[tuple[str, dict[str, Any]]] = []
    fetch: Callable[..., Any] = Pool.fetch

    def spy(pool: Pool, text: str, parameters: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        sent.append((text, dict(parameters)))
        return fetch(pool, text, parameters, *arguments, **options)

    with patch.object(Pool, "fetch", spy):
        yield sent


def operation_ids(count: int) -> list[UUID]:
    """Make operation ids ahead of time."""
    return [SYSTEM.operation_id() for _ in range(count)]


def document(columns: tuple[ms.Column, ...]) -> str:
    """Return the document of a table with these columns, as the library writes it."""
    return json.dumps(KINDS["table"].document(None, {}, {"columns": columns}), separators=(",", ":"))
