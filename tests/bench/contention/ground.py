"""Where cells are measured: each on a fresh database, because the one before leaves dead rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import psycopg

import metastore as ms
from tests.bench.contention.cells import Cell, Database
from tests.bench.contention.change import COUNTER
from tests.bench.contention.policy import Row
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, fill_lake, new_lake
from tests.servers.postgres import database_of

__all__ = ["SCHEMA", "Ground", "check", "rows_for"]

SCHEMA = f"{CATALOG}.s"
WARM_ROWS = 10


class Ground:
    """Makes databases: copies of a migrated one with a metalake, a catalog and a schema."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._last: str | None = None

    def fresh(self, database: Database) -> str:
        """Return the URL of a fresh database; the one before is gone then."""
        return self._postgres() if database == "postgres" else self._sqlite()

    @cached_property
    def _template(self) -> str:
        return database_of(new_lake(self._setting.durable, "s"))

    def _postgres(self) -> str:
        server = self._setting.durable
        if self._last is not None:
            server.drop_database(self._last)
        self._last = server.create_database(template=self._template)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        return self._last

    @cached_property
    def _folder(self) -> Path:
        folder = Path(self._setting.closing.enter_context(tempfile.TemporaryDirectory(prefix="contention-")))
        with ms.open(f"sqlite:///{folder / 'base'}", principal="bench") as store:
            fill_lake(store, "s")
        return folder

    def _sqlite(self) -> str:
        for path in self._folder.glob("copy*"):
            path.unlink()
        return f"sqlite:///{shutil.copy(self._folder / 'base', self._folder / 'copy')}"


def rows_for(cell: Cell, url: str, prefix: str = "") -> tuple[list[tuple[Row, ...]], list[Row]]:
    """Make the entities; return what each process writes, and the row of its own to warm up with."""
    count = {"hot": 1, "warm": WARM_ROWS, "cold": cell.processes}[cell.spread]
    with ms.open(url, principal="bench") as store:
        rows = _made(store, [f"{prefix}t{n}" for n in range(count)])
        own = _made(store, [f"{prefix}own{n}" for n in range(cell.processes)])
    if cell.spread == "cold":
        return [(row,) for row in rows], own
    return [tuple(rows)] * cell.processes, own


def _made(store: ms.Store, names: Sequence[str]) -> list[Row]:
    wanted = [{"name": name, "columns": COLUMNS, "properties": {COUNTER: "0"}} for name in names]
    store.tables.create_many(SCHEMA, wanted)
    rows = []
    for table in store.tables.load_many([f"{SCHEMA}.{name}" for name in names]):
        assert table is not None
        *ancestors, own = table.record.chain
        path = (*(node.name for node in ancestors), own.name)
        rows.append(Row(own.id, path, tuple((node.id, node.scope_version) for node in ancestors)))
    return rows


def check(cell: Cell, url: str, rows: Sequence[Row], applied: int, unknown: int) -> None:
    """Raise unless the counters say what the processes say."""
    with ms.open(url) as store:
        tables = store.tables.load_many([row.path for row in rows])
    counted = sum(int(table.properties[COUNTER]) for table in tables if table is not None)
    if not applied <= counted <= applied + unknown:
        raise RuntimeError(
            f"{cell}: NOT EXACT: {applied} operations succeeded and of {unknown} the outcome is unknown, "
            f"but the counters say {counted}"
        )
