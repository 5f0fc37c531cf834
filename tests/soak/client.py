"""A client that writes hot and cold entities for as long as it lives, and notes what it was told."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import metastore as ms
from tests.progress.accounts import Ledger

__all__ = ["DEADLINE", "HOT", "Calls", "work"]

DEADLINE = 5.0
HOT = "lake.cat.s.t"
FREEZE = 0.01


class Calls:
    """One method for each kind of call; each that returns has written something, exactly once."""

    def __init__(self, store: ms.Store, name: str, dice: random.Random) -> None:
        self._store, self._name, self._dice = store, name, dice
        self._number = 0
        self._mine: list[str] = []

    def next(self) -> Callable[..., object]:
        self._number += 1
        common = [self.hot, self.hot, self.announced, self.merged, self.create, self.create]
        seldom = [self.transaction, self.rename, self.drop, self.partition, self.schema, self.freeze]
        return self._dice.choice(common + seldom)

    def hot(self, principal: str) -> object:
        change = ms.SetProperty(self._name, str(self._number))
        return self._store.tables.alter(HOT, change, principal=principal)

    def announced(self, principal: str) -> object:
        table = self._store.tables.load(HOT)
        self._store._session.hot.note(table.id, ("table", table.names))
        change = ms.SetProperty(self._name, str(self._number))
        return self._store.tables.alter(table, change, principal=principal)

    def merged(self, principal: str) -> object:
        change = ms.SetProperty(self._name, f"{self._number} with an id")
        return self._store.tables.alter(HOT, change, principal=principal, operation_id=ms.new_operation_id())

    def create(self, principal: str) -> object:
        path = f"lake.cat.s.t{self._name}_{self._number}"
        found = self._store.tables.create(path, principal=principal)
        self._mine.append(path)
        return found

    def rename(self, principal: str) -> object:
        path = self._one_of_mine(principal)
        found = self._store.tables.rename(path, f"t{self._name}_{self._number}r", principal=principal)
        self._mine.append(found.path)
        return found

    def drop(self, principal: str) -> object:
        path = self._one_of_mine(principal)
        if not self._store.tables.drop(path, principal=principal):
            raise ms.EntityNotFound(path)  # it wrote nothing
        return None

    def partition(self, principal: str) -> object:
        name = f"{self._name}_{self._number}"
        return self._store.partitions.create(HOT, name, values={"p": name}, principal=principal)

    def transaction(self, principal: str) -> object:
        with self._store.transaction(principal=principal) as tx:
            tx.tables.alter(HOT, ms.SetComment(f"{self._name} {self._number}"))
            tx.tables.create(f"lake.cat.s.x{self._name}_{self._number}")
        return None

    def schema(self, principal: str) -> object:
        """An exclusive operation above all the others."""
        there = self._store.schemas.exists("lake.cat.other")
        path, to = ("lake.cat.other", "other2") if there else ("lake.cat.other2", "other")
        return self._store.schemas.rename(path, to, principal=principal)

    def freeze(self, principal: str) -> object:
        with self._store.schemas.exclusive("lake.cat.s", ttl=1.0, timeout=DEADLINE / 2, principal=principal) as tx:
            tx.schemas.alter("lake.cat.s", ms.SetProperty(self._name, str(self._number)))
            time.sleep(FREEZE)
        return None

    def _one_of_mine(self, principal: str) -> str:
        return self._mine.pop() if self._mine else self._store.tables.create(f"lake.cat.s.y{principal}").path


def work(url: str, name: str, folder: str) -> None:
    """Call, and note, until the flag is there or somebody kills us."""
    parent = os.getppid()
    ledger = Ledger(Path(folder) / name, name)
    dice = random.Random(name)
    over = Path(folder) / "over"
    while not over.exists() and os.getppid() == parent:
        try:
            store = ms.open(url, deadline=DEADLINE)
        except ms.MetastoreError:
            time.sleep(0.05)  # the server is away
            continue
        with store:
            calls = Calls(store, name, dice)
            while not over.exists() and os.getppid() == parent:
                ledger.call(calls.next(), DEADLINE)
    ledger.close()
