"""``siblings``: the clients create, alter and drop different tables of one schema, and must never conflict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from metastore.checker.finding import Finding
from metastore.columns.column import Column
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Ended, Me, Scenario
from metastore.store import Store

__all__ = ["Siblings"]

_ALTERED: Final = 3
_ALIVE: Final = 20
_NO_CONTENTION: Final = ("busy", "lost", "unavailable", "serialization")
"""Causes of lost attempts for which no other operation on the same entities is responsible."""


@dataclass(frozen=True)
class Siblings(Scenario):
    """Each table is created, altered three times, and dropped when there are twenty newer ones."""

    name = "siblings"
    about: ClassVar[str] = "create, alter and drop of different tables of one schema: there must be no conflict"

    def prepare(self, store: Store, ground: str) -> None:
        store.schemas.create(f"{ground}.s")

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        alive: list[str] = []
        number = 0
        while True:
            number += 1
            path = f"{me.ground}.s.t{me.tag}_{number}"
            table = calls.create(path, columns=[Column("id", "long")])
            yield 0.0
            for step in range(_ALTERED):
                calls.alter(path if table is None or step else table, SetProperty("step", str(step)))
                yield 0.0
            alive.append(path)
            if len(alive) > _ALIVE:
                calls.drop(alive.pop(0))
                yield 0.0

    def broken(self, store: Store, ended: Ended) -> list[Finding]:
        lost = {cause: count for cause, count in ended.causes.items() if cause not in _NO_CONTENTION}
        causes = ", ".join(f"{count} of cause {cause}" for cause, count in sorted(lost.items()))
        return [Finding("conflict", f"siblings must not conflict, and they did: {causes}", ())] if lost else []
