"""A SQLite whose clients stop before each statement, BEGIN IMMEDIATE and COMMIT.

A client that would write while another client writes is not released: SQLite would refuse the write, and the client
would try it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from unittest.mock import patch

from metastore.backends.sqlite.backend import SqliteBackend
from metastore.backends.sqlite.connect import DRIVER, Pool
from metastore.clock import SYSTEM
from metastore.port.backend import Backend
from tests.interleaving.world import START
from tests.statements.content import COLUMNS, ORDER, Content, content_of
from tests.statements.gate import Time, Worker, WorkerClock, current

__all__ = ["SqliteDatabase"]

Rewrite = Callable[[str], str]
_CONNECT = Pool._connect
_TABLES = ("guard", "entity", "owned", "relation", "operation", "lease", "lease_waiter", "staged", "ticket", "info")


class SqliteDatabase:
    """One file, in a folder that should be in memory. Its workers' connections are kept."""

    naps = 100
    name = "SQLite"

    def __init__(self, folder: Path, rewrite: Rewrite = str) -> None:
        self.time = Time()
        self._file = folder / "metastore.db"
        self._file.write_bytes(_migrated())
        self._installed = ExitStack()
        changed = lru_cache(4096)(rewrite)
        self._installed.enter_context(patch.object(Pool, "_connect", lambda pool: _Gated(_CONNECT(pool), changed)))
        self._backends: list[SqliteBackend] = []
        self.backend(0)
        self._backends[0].identify()  # as at open: no schedule has this read, then
        self._admin = DRIVER.connect(str(self._file), isolation_level=None)
        self._admin.execute("PRAGMA synchronous = OFF")
        self._admin.execute("ATTACH ':memory:' AS seed")
        for table in _TABLES:
            self._admin.execute(f"CREATE TABLE seed.{table} AS SELECT * FROM main.{table} WHERE false")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for backend in self._backends:
            backend.close()
        self._admin.close()
        self._installed.close()

    def backend(self, number: int) -> Backend:
        """Return the backend of a process."""
        while len(self._backends) <= number:
            clock = WorkerClock(self.time, len(self._backends))
            self._backends.append(SqliteBackend(str(self._file), 30.0, clock))
            if number:
                self._backends[-1].identify()
        return self._backends[number]

    def change(self, text: str) -> None:
        """Change the schema, for a mutant."""
        self._admin.execute(text)

    def clear(self) -> None:
        """Remove everything, before a setup."""
        self.time.at = START
        for table in _TABLES[:-1]:
            self._admin.execute(f"DELETE FROM main.{table}{' WHERE id <> 0' if table == 'guard' else ''}")
        self._admin.execute(
            "UPDATE main.info SET writer = 99, collected_seq = 0, last_id = 0, last_seq = 0, forgotten = 0"
        )

    def keep(self) -> None:
        """Let what is there now be what each schedule starts from."""
        for table in _TABLES:
            self._admin.execute(f"DELETE FROM seed.{table}")
            self._admin.execute(f"INSERT INTO seed.{table} SELECT * FROM main.{table}")
        self._began = self.time.at

    def reset(self) -> None:
        """Put back what was kept."""
        self.time.at = self._began
        self._admin.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            self._admin.execute(f"DELETE FROM main.{table}")
            self._admin.execute(f"INSERT INTO main.{table} SELECT * FROM seed.{table}")
        self._admin.execute("COMMIT")

    def pass_time(self, until: int) -> None:
        self.time.at = max(self.time.at, until)

    def content(self) -> Content:
        tables = {
            table: self._admin.execute(
                f"SELECT {', '.join(columns)} FROM main.{table} ORDER BY {', '.join(ORDER[table])}"
            ).fetchall()
            for table, columns in COLUMNS.items()
        }
        return content_of(tables)

    def problems(self) -> list[str]:
        """Return what ``verify`` finds."""
        from metastore.verify.verify import verify

        return [v.message for v in verify(self.backend(0))]

    def waiting(self, asked: Sequence[Worker], among: Sequence[Worker]) -> set[Worker]:
        """Nobody waits inside of SQLite."""
        return set()

    def cancel(self, worker: Worker, *, deadlock: bool) -> None:
        raise NotImplementedError


@cache
def _migrated() -> bytes:
    """Return an empty, migrated file: to migrate takes longer than to explore many a program."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "metastore.db")
        backend = SqliteBackend(str(file), 30.0, SYSTEM)
        backend.migrate()
        backend.close()
        return file.read_bytes()


class _Gated:
    """A connection with gates; ``changed`` is what a mutant makes of each text."""

    def __init__(self, connection: Any, changed: Rewrite) -> None:
        self._connection, self._changed = connection, changed
        self._reading = 0  # how many statements of a transaction that only reads were sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, text: str, *parameters: Any) -> Any:
        text = self._changed(text)
        self._wait(text)
        return self._connection.execute(text, *parameters)

    def executemany(self, text: str, *parameters: Any) -> Any:
        text = self._changed(text)
        self._wait(text)
        return self._connection.executemany(text, *parameters)

    def rollback(self) -> None:
        self._connection.rollback()
        if (worker := current()) is not None:
            worker.writing, worker.freed = False, True

    def _wait(self, text: str) -> None:
        worker = current()
        if worker is None or text.startswith("PRAGMA"):
            return
        if text == "BEGIN IMMEDIATE":
            worker.gate("begin", text)
            worker.writing = True
        elif text in ("COMMIT", "ROLLBACK"):
            if worker.writing:
                worker.gate("commit", text)
                worker.writing, worker.freed = False, True
        elif text == "BEGIN":
            self._reading = 0
        elif worker.writing or (self._reading and self._connection.in_transaction):
            worker.pass_by(text)
        elif self._connection.in_transaction:
            worker.gate("read", text)  # it takes the snapshot
            self._reading += 1
        else:
            worker.gate("read" if text.startswith(("SELECT", "WITH")) else "commit", text)
