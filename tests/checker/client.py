"""A client that records what it does."""

from __future__ import annotations

from pathlib import Path

import metastore as ms
from metastore.checker.recorder import Recorder
from metastore.checker.records import Lost, Outcome, Seen
from metastore.retry.policy import Attempt
from metastore.transaction.transaction import Transaction

__all__ = ["Client"]


class Client:
    """Loads, alters, creates, drops and writes transactions on two tables of one schema."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self._attempts: list[Attempt] = []
        self._store = ms.open(url, hooks=(self._attempts.append,))
        self._recorder = Recorder(folder, name)
        self._name = name

    def work(self, rounds: int) -> None:
        with self._store:
            for n in range(rounds):
                self._load(f"lake.c.s.t{n % 2}")
                self._write("alter", f"lake.c.s.t{n % 2}", n)
                self._write("transaction", f"lake.c.s.t{n % 2}", n)
                self._write("drop" if n % 2 else "create", "lake.c.s.u", n)
                self._load("lake.c.s.u")
        self._recorder.close()

    def _load(self, path: str) -> None:
        operation = self._recorder.begin("load", "table", path)
        try:
            table = self._store.tables.load(path)
            operation.reads.append(Seen(path, True, table.id, table.version))
        except ms.EntityNotFound:
            operation.reads.append(Seen(path, False))
        self._recorder.end(operation, "read")

    def _write(self, action: str, path: str, n: int) -> None:
        self._attempts.clear()
        operation = self._recorder.begin(action, "table", path)
        tables, who = self._store.tables, operation.principal
        try:
            applied = True
            if action == "alter":
                tables.alter(path, ms.SetProperty(self._name, str(n)), principal=who)
            elif action == "create":
                tables.create(path, principal=who)
            elif action == "drop":
                applied = tables.drop(path, principal=who)
            else:
                operation.reads = self._store.run(lambda tx: self._copy(tx, path, n), principal=who)
            outcome: Outcome = "applied" if applied else "nothing"
        except (ms.EntityNotFound, ms.EntityAlreadyExists):
            outcome = "failed"
        operation.attempts = len(self._attempts)
        operation.conflicts = [Lost(a.cause, a.entity_id, a.expected) for a in self._attempts if a.cause]
        self._recorder.end(operation, outcome)

    def _copy(self, tx: Transaction, path: str, n: int) -> list[Seen]:
        """Write to one table what is read from the other."""
        other = path[:-1] + str(1 - int(path[-1]))
        table = tx.tables.load(other)
        tx.tables.alter(path, ms.SetProperty("copied", f"{table.version} {self._name} {n}"))
        return [Seen(other, True, table.id, table.version)]
