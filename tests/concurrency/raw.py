"""The database itself, beside the store: for what a test checks with its own SQL, or does to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg

import metastore as ms
from metastore.backends.sqlite.connect import DRIVER  # another SQLite in one process would drop the locks of this one
from metastore.urls import parse_url

__all__ = ["at_work", "before_commit", "connect", "dsn", "is_sqlite", "rows", "waiting_for_locks"]


def is_sqlite(url: str) -> bool:
    """Tell whether the URL is one of a file."""
    return url.startswith("sqlite")


def dsn(url: str) -> str:
    """Return the URL for psycopg."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


@contextmanager
def connect(url: str) -> Iterator[Any]:
    """Open a connection in autocommit, with the driver that the store uses."""
    if is_sqlite(url):
        connection = DRIVER.connect(parse_url(url).database, isolation_level=None, timeout=30)
    else:
        connection = psycopg.connect(dsn(url), autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with connect(url) as connection:
        found: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
        return found


@contextmanager
def before_commit(store: ms.Store, action: Callable[[], object], *, times: int = 1) -> Iterator[Mapping[str, int]]:
    """Let ``action`` happen right before each of the store's next commits: an adversary that is never late."""
    backend = store._session.backend
    original = backend.commit
    seen = {"commits": 0}

    def commit(value: Any) -> Any:
        seen["commits"] += 1
        if seen["commits"] <= times:
            action()
        return original(value)

    setattr(backend, "commit", commit)  # noqa: B010  (a method: it cannot simply be assigned)
    try:
        yield seen
    finally:
        delattr(backend, "commit")


def at_work(url: str) -> int:
    """How many other sessions of a PostgreSQL database are in a statement or a transaction."""
    others = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    return int(rows(url, f"SELECT count(*) FROM pg_stat_activity WHERE {others} AND state <> 'idle'")[0][0])


def waiting_for_locks(url: str) -> int:
    """How many sessions of a PostgreSQL database wait for a lock."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int(rows(url, sql)[0][0])
