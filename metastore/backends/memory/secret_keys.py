"""Keep the data keys of secrets in the memory model."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.memory.tables import Tables, Work
from metastore.port.secret_keys import KeyRow, Redaction


class MemorySecretKeys:
    """The implementation of :class:`metastore.port.secret_keys.SecretKeys`."""

    def __init__(self, look: Work) -> None:
        self._look = look

    def rows(self) -> list[KeyRow]:
        return self._look(lambda tables, _: sorted(tables.secret_keys.values()))

    def add(self, number: int, wrapped: str, wrapper: str) -> KeyRow:
        return self._look(
            lambda tables, now: tables.secret_keys.setdefault(number, KeyRow(number, wrapped, wrapper, now))
        )

    def rewrap(self, row: KeyRow, wrapped: str | None, wrapper: str) -> bool:
        def change(tables: Tables, _: int) -> bool:
            stored = tables.secret_keys.get(row.number)
            if stored is None or stored.wrapped != row.wrapped:
                return False
            tables.secret_keys[row.number] = stored._replace(wrapped=wrapped, wrapper=wrapper)
            return True

        return self._look(change)

    def redact(self, rows: Sequence[Redaction]) -> int:
        wanted = {(row.operation_id, row.ordinal): row for row in rows}

        def change(tables: Tables, _: int) -> int:
            done = 0
            for n, step in enumerate(tables.steps):
                row = wanted.get((step.operation_id, step.ordinal))
                if row is not None and (step.doc, step.changes, step.result) == row.before:
                    tables.steps[n] = step._replace(doc=row.doc, changes=row.changes, result=row.result)
                    done += 1
            return done

        return self._look(change)

    def erase(self) -> bool:
        return True  # a database in memory has no file that could keep the old key
