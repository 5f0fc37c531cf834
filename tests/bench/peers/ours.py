"""Ours, as a user has it: paths, or the entities that were returned before."""

from __future__ import annotations

import metastore as ms
from metastore.checker.records import Lost
from metastore.errors import EntityAlreadyExists, EntityNotFound
from metastore.retry.policy import Attempt
from tests.bench.core.setting import COLUMNS
from tests.bench.peers.contender import Did

__all__ = ["InHand", "Ours"]

FAILED = Did("failed")


class Ours:
    """``store.tables`` by path."""

    def __init__(self, url: str, principal: str) -> None:
        self.principal = principal
        self.lost: list[Lost] = []
        self._store = ms.open(url, hooks=(self._seen,))
        self._tables = self._store.tables

    def close(self) -> None:
        self._store.close()

    def load(self, path: str) -> Did:
        try:
            table = self._tables.load(path)
        except EntityNotFound:
            return Did("read")
        return Did("read", table.id, table.version)

    def alter(self, path: str, key: str, value: str) -> Did:
        try:
            table = self._tables.alter(path, ms.SetProperty(key, value), principal=self.principal)
        except EntityNotFound:
            return FAILED
        return Did("applied", table.id, table.version)

    def create(self, path: str) -> Did:
        try:
            table = self._tables.create(path, columns=COLUMNS, principal=self.principal)
        except EntityAlreadyExists:
            return FAILED
        return Did("applied", table.id, table.version)

    def drop(self, path: str) -> Did:
        return Did("applied" if self._tables.drop(path, principal=self.principal) else "nothing")

    def rename(self, path: str, to: str) -> Did:
        try:
            table = self._tables.rename(path, to, principal=self.principal)
        except (EntityNotFound, EntityAlreadyExists):
            return FAILED
        return Did("applied", table.id, table.version)

    def _seen(self, attempt: Attempt) -> None:
        if attempt.cause is not None:
            self.lost.append(Lost(attempt.cause, attempt.entity_id, attempt.expected))


class InHand(Ours):
    """The same with what it has seen before in hand: its id is meant then, and the version is a first guess.

    An entity that is gone is looked for by its path again.
    """

    def __init__(self, url: str, principal: str) -> None:
        super().__init__(url, principal)
        self._seen_last: dict[str, ms.Table] = {}
        self._schemas: dict[str, ms.Schema] = {}

    def load(self, path: str) -> Did:
        try:
            table = self._seen_last[path] = self._tables.load(path)
        except EntityNotFound:
            self._seen_last.pop(path, None)
            return Did("read")
        return Did("read", table.id, table.version)

    def alter(self, path: str, key: str, value: str) -> Did:
        hand = self._seen_last.pop(path, None)
        if hand is not None:
            try:
                table = self._tables.alter(hand, ms.SetProperty(key, value), principal=self.principal)
            except EntityNotFound:
                return super().alter(path, key, value)
            self._seen_last[table.path] = table
            return Did("applied", table.id, table.version)
        return super().alter(path, key, value)

    def create(self, path: str) -> Did:
        above, _, name = path.rpartition(".")
        schema = self._schemas.get(above) or self._store.schemas.load(above)
        self._schemas[above] = schema
        try:
            table = self._tables.create(name, parent=schema, columns=COLUMNS, principal=self.principal)
        except EntityAlreadyExists:
            return FAILED
        self._seen_last[path] = table
        return Did("applied", table.id, table.version)

    def drop(self, path: str) -> Did:
        hand = self._seen_last.pop(path, None)
        if hand is not None and self._tables.drop(hand, principal=self.principal):
            return Did("applied")
        return super().drop(path)

    def rename(self, path: str, to: str) -> Did:
        hand = self._seen_last.pop(path, None)
        if hand is None:
            return super().rename(path, to)
        try:
            table = self._tables.rename(hand, to, principal=self.principal)
        except EntityNotFound:
            return super().rename(path, to)
        except EntityAlreadyExists:
            return FAILED
        self._seen_last[table.path] = table
        return Did("applied", table.id, table.version)
