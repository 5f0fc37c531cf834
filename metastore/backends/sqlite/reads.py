"""Read from SQLite: each read is one statement, or several in one read transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from uuid import UUID

from metastore.backends.sql import snapshot as verify_sql
from metastore.backends.sql.decode import lookup_parameters, resolved, step
from metastore.backends.sql.deep_paths import DEEP, resolve_deep
from metastore.backends.sql.dialect import Dialect
from metastore.backends.sql.find import glob_of
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.questions import Questions, Texts
from metastore.backends.sql.reads import ReadSql
from metastore.backends.sql.touched import touched_sql
from metastore.backends.sqlite.connect import DRIVER, Pool, raise_read_error
from metastore.backends.sqlite.text import LenientReader, NotUtf8, all_rows, lenient
from metastore.clock import Clock
from metastore.port.backend import Guards
from metastore.port.format import check_compatible
from metastore.port.records import Lookup, OwnedRecord, Resolved, RowPage, Step
from metastore.port.relations import RelationRecord
from metastore.port.snapshot import Watermark
from metastore.port.touched import Touch, Touched

READ = ReadSql(
    Dialect(
        parameter=":name",
        # CROSS JOIN makes SQLite keep this order; otherwise it would read the whole table, and search the few rows on
        # the left
        join="CROSS JOIN {table} {alias} ON {condition}",
        left_join="LEFT JOIN {table} {alias} ON {condition}",
        array="json_array",
        gathered="json_group_array",
        nested="json",
        text="",
        fits="{} GLOB {}",
        contains="instr({}, {}) > 0",
        distinct="DISTINCT",
        held="""SELECT count(*) FROM json_each(:guards) w JOIN guard g
    ON g.id = json_extract(w.value, '$[0]') AND g.scope_version = json_extract(w.value, '$[1]')""",
        select_ids="SELECT value FROM json_each(:ids)",
        select_chosen="SELECT value FROM json_each(:chosen)",
        w_ids="(SELECT value AS id FROM json_each(:ids)) AS w",
        w_places="(SELECT value AS id FROM json_each(:places)) AS w",
        w_names="(SELECT value AS name FROM json_each(:names)) AS w",
        w_slots="""(SELECT json_extract(value, '$[0]') AS from_id, json_extract(value, '$[1]') AS slot
    FROM json_each(:wanted)) AS w""",
        w_owned="""(SELECT key AS n, json_extract(value, '$[0]') AS owner_id, json_extract(value, '$[1]') AS name
    FROM json_each(:wanted)) AS w""",
        in_families="g.family IN (SELECT value FROM json_each(:families))",
        in_kinds="(:kinds IS NULL OR n.kind IN (SELECT value FROM json_each(:kinds)))",
        w_paths=lambda columns: (
            "(SELECT key AS n, json_extract(value, '$[0]') AS start"
            + "".join(f", json_extract(value, '$[{at}]') AS {c}" for at, c in enumerate(columns, 1))
            + " FROM json_each(:wanted)) AS w"
        ),
    )
)
_TEXTS = Texts(READ)


class SqliteReads(Questions):
    """The reading half of the backend."""

    sql = _TEXTS

    def __init__(self, database: str | None, timeout: float, clock: Clock, limits: Limits | None = None) -> None:
        self.pool = Pool(database, timeout, limits or Limits())
        self._clock = clock

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            with self.pool.connection() as connection:
                return all_rows(connection, text, parameters)
        except DRIVER.Error as error:
            raise_read_error(error)

    @staticmethod
    def _pattern(glob: str) -> str:
        return glob_of(glob)

    @staticmethod
    def _ids(ids: Iterable[int]) -> str:
        return json.dumps(list(ids))

    @staticmethod
    def _names(names: Iterable[str]) -> str:
        return json.dumps(list(names))

    @staticmethod
    def _guards(guards: Guards) -> dict[str, str]:
        return {"guards": json.dumps(list(guards))}

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        if any(len(w.names) > DEEP for w in lookups):
            return [resolve_deep(self.resolve, self.hold, w) for w in lookups]
        try:
            with self.pool.connection() as connection:
                if len(lookups) > 1:
                    connection.execute("BEGIN")  # so that all come from one instant
                found = [all_rows(connection, _TEXTS.resolve(len(w.names)), lookup_parameters(w)) for w in lookups]
                if len(lookups) > 1:
                    connection.execute("COMMIT")
        except DRIVER.Error as error:
            raise_read_error(error)
        return [resolved(rows[0] if rows else None, len(w.names)) for rows, w in zip(found, lookups, strict=True)]

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        wanted = json.dumps(list(zip(owner_ids, names, strict=True)))
        rows = self._rows(READ.owned_by_name, {"wanted": wanted, "kind": kind})
        by_number = {row[0]: OwnedRecord(*row[1:]) for row in rows}
        return [by_number.get(n) for n in range(len(names))]

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        rows = self._rows(_TEXTS.relations, {"kind": kind, "wanted": json.dumps(list(slots))})
        return [RelationRecord(*row) for row in rows]

    def steps(self, operation_id: UUID) -> list[Step]:
        return [step(row) for row in self._rows(READ.steps, {"operation_id": str(operation_id)})]

    def feed(self, after: int, limit: int, *, docs: bool = True, changes: bool = True) -> RowPage[Step]:
        """Every position is decided, because numbers are drawn inside the only writing transaction."""
        text = READ.feed_with(docs=docs, changes=changes)
        return RowPage(True, [step(row) for row in self._rows(text, {"after": after, "page_size": limit})])

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        named = {"after": after, "gaps": json.dumps(list(gaps)), "page_size": limit + 1}
        (epoch, collected, *_), *_ = rows = self._rows(_TOUCHED, named)
        return Touched(epoch, collected, 1, [Touch(*row[2:]) for row in rows if row[2] is not None])

    def hearing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def hint(self, *, send: bool) -> bool:
        return False

    def feed_start(self) -> tuple[str, int]:
        ((compatible_from, epoch, collected),) = self._rows(
            "SELECT compatible_from, epoch, collected_seq FROM info", {}
        )
        check_compatible(compatible_from)
        return epoch, collected

    def unbroken(self, seq: int) -> bool:
        return True

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        rows = self._rows("SELECT operation_id FROM operation WHERE seq = :seq", {"seq": seq})
        return UUID(rows[0][0]) if rows else None, False

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a read transaction. In WAL mode it blocks no writer."""
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN")
                with lenient(connection) as reader:
                    yield _Snapshot(connection, reader)
                connection.execute("ROLLBACK")
        except DRIVER.Error as error:
            raise_read_error(error)

    def watermark(self) -> Watermark:
        return Watermark(self._rows("SELECT last_seq FROM info", {})[0][0], 0)

    def decided(self, watermark: Watermark) -> bool:
        return True


_GAPS = "FROM operation o WHERE o.seq IN (SELECT value FROM json_each(:gaps))"
_TOUCHED = touched_sql("i.epoch, i.collected_seq", ":name", _GAPS)
_AMONG = "IN (SELECT value FROM json_each(:ids))"


_TEXT_COLUMNS = {
    "guard": ("id", "kind", "family", "name", "key"),
    "entity": ("id", "doc", "created_by", "modified_by"),
    "owned": ("id", "kind", "name", "doc", "created_by", "modified_by"),
    "operation": ("entity_id", "action", "principal", "path_before", "path_after", "changes", "doc", "result"),
    "lease": ("id", "name", "owner", "incarnation"),
}
"""The texts that :meth:`_Snapshot.not_utf8` checks, after the column that identifies the row."""


class _Snapshot:
    """Cursors in one read transaction. Its first read fixes the instant."""

    def __init__(self, connection: Any, reader: LenientReader) -> None:
        self._connection, self._reader = connection, reader

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        if only is None:
            return self._reader.rows(verify_sql.select(table, columns, order))
        return self._reader.rows(verify_sql.select(table, columns, order, _AMONG), {"ids": json.dumps(only)})

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        parameters = {"ids": json.dumps(parent_ids)}
        return self._reader.rows(verify_sql.select_below(columns, _AMONG, gone=gone), parameters)

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.SQLITE_NUMBERS).fetchone()
        return row[0], row[1]

    def cached(self) -> list[str]:
        return []

    def damaged(self) -> Iterator[str]:
        rows = self._connection.execute("PRAGMA integrity_check(20)").fetchall()
        return (str(row[0]) for row in rows if row[0] != "ok")

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        for table, columns in _TEXT_COLUMNS.items():
            for row in self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):
                for column, value in zip(columns, row, strict=True):
                    if isinstance(value, NotUtf8):
                        yield table, row[0], column
