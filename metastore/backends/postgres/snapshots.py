"""A snapshot of all tables, read through cursors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from metastore.backends.postgres.home import CACHED
from metastore.backends.sql import snapshot as verify_sql
from metastore.clock import process_id

_AMONG = "= ANY(%(ids)s::bigint[])"


class Snapshot:
    """Cursors in one REPEATABLE READ transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection, self._process = connection, process_id()
        self._opened = 0

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        text = verify_sql.select(table, columns, order, None if only is None else _AMONG)
        # a document may have a megabyte, so read fewer rows at once
        return self._stream(text, only, 100 if "doc" in columns else 1000)

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        return self._stream(verify_sql.select_below(columns, _AMONG, gone=gone), parent_ids, 1000)

    def _stream(self, text: str, ids: Sequence[int] | None, at_once: int) -> Iterator[tuple[Any, ...]]:
        self._opened += 1
        cursor = self._connection.cursor(name=f"metastore_{self._opened}")
        cursor.itersize = at_once
        try:
            cursor.execute(text, None if ids is None else {"ids": list(ids)})
            yield from cursor
        finally:
            if self._process == process_id():  # a forked child would close it in its parent's session
                cursor.close()

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.POSTGRES_NUMBERS).fetchone()
        assert row is not None
        return row[0], row[1]

    def cached(self) -> list[str]:
        return [row[0] for row in self._connection.execute(CACHED).fetchall()]

    def damaged(self) -> Iterator[str]:
        return iter(())

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        return iter(())
