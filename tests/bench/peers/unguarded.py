"""The five operations as plain SQL: right only where somebody else keeps others out, by a lock."""

from __future__ import annotations

import psycopg

from metastore.checker.records import Lost
from tests.bench.peers import statements
from tests.bench.peers.contender import Did
from tests.bench.peers.session import Session, altered, fresh, place

__all__ = ["FAILED", "LOAD", "WRITE", "Unguarded", "did", "renamed"]

LOAD, WRITE = statements.load(rows=False), statements.write()
CREATE, DROP, RENAME = (make(rows=False) for make in (statements.create, statements.drop, statements.rename))
FAILED = Did("failed")


def did(row: tuple[int, int] | None, otherwise: Did = FAILED) -> Did:
    """Return what a write was told: the row of its event, or none."""
    return otherwise if row is None else Did("applied", *row)


def renamed(path: str, to: str) -> dict[str, str]:
    """Return the parameters that only a rename has."""
    return {"to": to, "path_to": f"{path.rpartition('.')[0]}.{to}"}


class Unguarded:
    """A statement each, an alter two: read, and overwrite."""

    def __init__(self, url: str, principal: str) -> None:
        self.principal = principal
        self.lost: list[Lost] = []
        self._session = Session(url)

    def load(self, path: str) -> Did:
        row = self._session.one(LOAD, place(path))
        return Did("read") if row is None else Did("read", row[0], row[1])

    def alter(self, path: str, key: str, value: str) -> Did:
        row = self._session.one(LOAD, place(path))
        if row is None:
            return FAILED
        return did(self._session.one(WRITE, {**self._fresh(path), "id": row[0], **altered(row[2], key, value)}))

    def create(self, path: str) -> Did:
        return did(self._session.one(CREATE, self._fresh(path)))

    def drop(self, path: str) -> Did:
        return did(self._session.one(DROP, self._fresh(path)), Did("nothing"))

    def rename(self, path: str, to: str) -> Did:
        try:
            return did(self._session.one(RENAME, {**self._fresh(path), **renamed(path, to)}))
        except psycopg.errors.UniqueViolation:
            return FAILED

    def close(self) -> None:
        self._session.close()

    def _fresh(self, path: str) -> dict[str, object]:
        return fresh(path, self.principal)
