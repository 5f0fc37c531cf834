"""What a call costs: statements, the rows that they return, the blocks that they read, the memory that it takes.

On PostgreSQL pg_stat_statements counts. On SQLite, where a page of the file in the cache costs nothing to count, the
steps of its virtual machine stand for blocks.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol
from unittest.mock import patch

import psycopg

import metastore as ms
from metastore.backends.sqlite.connect import Pool

__all__ = ["Cost", "Counter", "PostgresCounter", "SqliteCounter", "measured"]

_ITEMS: Final = 100_000
"""So many items of a listing are taken at most."""
_STEP: Final = 1
"""SQLite counts each prepared statement on its own: with 20 steps, each statement of a call was off by up to 20."""


class Cost(NamedTuple):
    """What one call cost."""

    answer: int
    """How many items it returned; one for what is not a listing."""
    statements: int
    rows: int
    blocks: int
    peak: int
    """The most memory of Python at a time (bytes); 0: it was not watched."""
    seconds: float
    refused: str = ""
    """The error that the call raised."""


class Counter(Protocol):
    """Counts what a database does."""

    def reset(self) -> None:
        """Begin at zero."""

    def counted(self) -> tuple[int, int, int]:
        """Return statements, rows and blocks since then."""


class PostgresCounter:
    """Counts with pg_stat_statements, which the server has loaded."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def reset(self) -> None:
        self._connection.execute("SELECT pg_stat_statements_reset()")

    def analyze(self) -> None:
        """Let the server look at what was filled in."""
        self._connection.execute("VACUUM ANALYZE")

    def counted(self) -> tuple[int, int, int]:
        ((statements, rows, blocks),) = self._connection.execute(_COUNTED).fetchall()
        return int(statements), int(rows), int(blocks)


_COUNTED: Final = """SELECT coalesce(sum(calls), 0), coalesce(sum(rows), 0),
  coalesce(sum(shared_blks_hit + shared_blks_read), 0)
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'"""


class SqliteCounter:
    """Counts on every connection that is opened under it."""

    def __init__(self) -> None:
        self.statements = self.steps = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count on each new connection."""
        opened: Any = Pool._opened

        def watched(*args: Any, **options: Any) -> Any:
            connection = opened(*args, **options)
            connection.set_progress_handler(self._stepped, _STEP)
            connection.set_trace_callback(self._began)
            return connection

        with patch.object(Pool, "_opened", watched):
            yield

    def _stepped(self) -> int:
        self.steps += _STEP
        return 0

    def _began(self, _: str) -> None:
        self.statements += 1

    def reset(self) -> None:
        self.statements = self.steps = 0

    def counted(self) -> tuple[int, int, int]:
        return self.statements, 0, self.steps


def measured(counter: Counter, call: Callable[[], Any], *, watched: bool = True) -> Cost:
    """Call, take all that it returns, and return what that cost.

    ``watched``: its memory too, which makes what runs in Python five times as slow.
    """
    counter.reset()
    if watched:
        tracemalloc.start()
    began, answer, refused = perf_counter(), 1, ""
    try:
        found = call()
        if isinstance(found, Iterator):
            answer = sum(1 for _ in islice(found, _ITEMS))
        elif isinstance(found, list | tuple | ms.Page):
            answer = len(found.items if isinstance(found, ms.Page) else found)
    except ms.BackendUnavailable:
        raise  # nothing was measured: an alarm of pytest ends a statement of SQLite there, and is lost in its callback
    except ms.MetastoreError as error:
        refused = type(error).__name__
    finally:
        seconds, (_, peak) = perf_counter() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return Cost(answer, *counter.counted(), peak, seconds, refused)
