"""create_many against COPY of the same rows into the same tables and indexes."""

from __future__ import annotations

from typing import Any

import psycopg

import metastore as ms
from metastore.backends.sql.tables import entity, guard, operation
from metastore.store import Store
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, new_lake
from tests.bench.timing import interleaved, ratios, seconds

__all__ = ["measure"]

SELECT = {
    guard.name: "SELECT {columns} FROM guard WHERE parent_id = %(parent)s ORDER BY id",
    entity.name: """SELECT {columns} FROM entity
      WHERE id IN (SELECT id FROM guard WHERE parent_id = %(parent)s) ORDER BY id""",
    operation.name: """SELECT {columns} FROM operation
      WHERE entity_id IN (SELECT id FROM guard WHERE parent_id = %(parent)s) ORDER BY seq""",
}
MOVED = {
    "id": "id + %(ids)s",
    "entity_id": "entity_id + %(ids)s",
    "seq": "seq + %(seqs)s",
    "parent_id": "%(target)s::bigint",
    "operation_id": "md5(operation_id::text || %(target)s)::uuid",
}
"""What is different in the copies: ids, positions and operation ids, which are unique, and the parent."""


def measure(setting: Setting) -> None:
    """Let both write the same rows in turn, each time below a new schema."""
    both = _Both(new_lake(setting.durable), setting.count(10_000))
    found = interleaved({"copy": both.copy, "ours": both.create_many}, setting.runs)
    setting.figures.record("bulk_vs_copy", ratios(found["ours"], found["copy"]))
    setting.figures.record("bulk_create_per_s", found["ours"])
    setting.figures.record("bulk_copy_per_s", found["copy"])
    both.close()


class _Both:
    """The library and a COPY on one database."""

    def __init__(self, url: str, count: int) -> None:
        self._store: Store = ms.open(url, principal="bench")
        self._connection = psycopg.connect(url.replace("+psycopg", ""))
        self._rows = [{"name": f"table_{n}", "columns": COLUMNS} for n in range(count)]
        self._schemas = 0
        self._model = self._new_schema().id
        self._store.tables.create_many(f"{CATALOG}.s1", self._rows)

    def close(self) -> None:
        self._connection.close()
        self._store.close()

    def _new_schema(self) -> Any:
        self._schemas += 1
        return self._store.schemas.create(f"{CATALOG}.s{self._schemas}")

    def create_many(self) -> float:
        """Create the tables below a new schema; return how many per second."""
        schema = self._new_schema()
        return len(self._rows) / seconds(lambda: self._store.tables.create_many(schema, self._rows))

    def copy(self) -> float:
        """Copy the rows of the first schema's tables below a new schema; return how many per second."""
        data = self._rows_for(self._new_schema().id)

        def work() -> None:
            with self._connection.cursor() as cursor:
                for command, content in data:
                    with cursor.copy(command) as copy:
                        copy.write(content)
            self._connection.commit()

        return len(self._rows) / seconds(work)

    def _rows_for(self, target: int) -> list[tuple[str, bytes]]:
        """Return each COPY and its data; the ids and positions are drawn before."""
        ids, seqs = self._shift("entity_id_seq", "id", "entity"), self._shift("change_seq", "seq", "operation")
        values = {"parent": self._model, "target": target, "ids": ids, "seqs": seqs}
        found = []
        for table in (guard, entity, operation):
            names = [c.name for c in table.columns]
            columns = ", ".join(MOVED.get(name, name) for name in names)
            query = SELECT[table.name].format(columns=columns)
            for name, value in values.items():
                literal = f"'{value}'" if name == "target" else str(value)
                query = query.replace(f"%({name})s", literal)
            with self._connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
                found.append((f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT binary)", b"".join(copy)))
        self._connection.commit()
        return found

    def _shift(self, sequence: str, column: str, table: str) -> int:
        """Reserve as many numbers as there are rows; return what leads from the old numbers to these."""
        count = len(self._rows)
        sql = f"SELECT setval('{sequence}', nextval('{sequence}') + {count + 10}) - {count + 5}"
        ((start,),) = self._connection.execute(sql).fetchall()
        parent = "id" if table == "entity" else "entity_id"
        model = f"SELECT id FROM guard WHERE parent_id = {self._model}"
        sql = f"SELECT min({column}) FROM {table} WHERE {parent} IN ({model})"
        ((first,),) = self._connection.execute(sql).fetchall()
        return int(start) - int(first)
