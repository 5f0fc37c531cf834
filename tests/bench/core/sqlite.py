"""The same for SQLite: the library against its own statements on a plain connection."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import metastore as ms
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.backends.sqlite.connect import Pool
from metastore.store import Store
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, fill_lake
from tests.bench.timing import interleaved, ratios, seconds

__all__ = ["measure"]

PATH = f"{CATALOG}.s.table"


def measure(setting: Setting) -> None:
    """Replay what the library sent, parameters included, on copies of the same file."""
    with tempfile.TemporaryDirectory() as folder:
        files = _Files(Path(folder))
        writes, reads, rows = setting.count(300), setting.count(2000), setting.count(5000)
        sent = files.record_alters(writes)
        found = interleaved(
            {
                "sqlite_alter_per_s": lambda: files.alter(writes),
                "sqlite_alter_same_sql_per_s": lambda: files.replay(sent, writes),
                "sqlite_load_per_s": lambda: files.load(reads),
                "sqlite_load_same_sql_per_s": lambda: files.replay(files.record_load() * reads, reads),
                "sqlite_bulk_create_per_s": lambda: files.create_many(rows),
            },
            setting.runs,
        )
    for name, values in found.items():
        setting.figures.record(name, values)
    for verb, name in (("write", "alter"), ("read", "load")):
        values = ratios(found[f"sqlite_{name}_per_s"], found[f"sqlite_{name}_same_sql_per_s"])
        setting.figures.record(f"sqlite_{verb}_vs_same_sql", values)


Sent = list[tuple[str, Any]]


class _Spy:
    """A connection that notes what is executed."""

    def __init__(self, connection: Any, sent: Sent) -> None:
        self._connection = connection
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, text: str, parameters: Any = ()) -> Any:
        self._sent.append((text, parameters))
        return self._connection.execute(text, parameters)


class _Files:
    """A small lake in one file, and fresh copies of it."""

    def __init__(self, folder: Path) -> None:
        self._base = folder / "base.db"
        self._copy = folder / "copy.db"
        with ms.open(f"sqlite:///{self._base}", principal="bench") as store:
            fill_lake(store, "s")
            store.tables.create(PATH, columns=COLUMNS)

    def _fresh(self) -> Path:
        for path in self._copy.parent.glob(f"{self._copy.name}*"):
            path.unlink()
        shutil.copy(self._base, self._copy)
        return self._copy

    def _open(self) -> Store:
        return ms.open(f"sqlite:///{self._fresh()}", principal="bench")

    def record_alters(self, count: int) -> Sent:
        sent: Sent = []
        with self._open() as store, _spied(store, sent):
            self._alter(store, store.tables.load(PATH), count)
        return sent[1:]

    def record_load(self) -> Sent:
        sent: Sent = []
        with self._open() as store, _spied(store, sent):
            store.tables.load(PATH)
        return sent

    def _alter(self, store: Store, table: ms.Table, count: int) -> None:
        for n in range(count):
            table = store.tables.alter(table, ms.SetProperty("turn", str(100_000 + n)))

    def alter(self, count: int) -> float:
        with self._open() as store:
            table = store.tables.load(PATH)
            return count / seconds(lambda: self._alter(store, table, count))

    def load(self, count: int) -> float:
        with self._open() as store:
            return count / seconds(lambda: [store.tables.load(PATH) and None for _ in range(count)])

    def create_many(self, count: int) -> float:
        rows = [{"name": f"table_{n}", "columns": COLUMNS} for n in range(count)]
        with self._open() as store:
            return count / seconds(lambda: store.tables.create_many(f"{CATALOG}.s", rows))

    def replay(self, sent: Sent, count: int) -> float:
        connection = Pool(str(self._fresh()), 30.0)._connect()

        def work() -> None:
            for text, parameters in sent:
                connection.execute(text, parameters)

        try:
            return count / seconds(work)
        finally:
            connection.close()


@contextmanager
def _spied(store: Store, sent: Sent) -> Iterator[None]:
    pool = cast(SqliteBackend, store._session.backend).pool
    lend = pool.connection

    @contextmanager
    def spying() -> Iterator[Any]:
        with lend() as connection:
            yield _Spy(connection, sent)

    pool.connection = spying  # type: ignore[method-assign, assignment]
    yield
