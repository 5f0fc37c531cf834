"""``hot-table``: all clients alter one table: each its own property, and all of them one counter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from metastore.columns.column import Column
from metastore.kinds.change import SetProperty
from metastore.kinds.table.kind import Table
from metastore.loadtest.calls import Calls, Within
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.store import Store

__all__ = ["COUNTER", "HotTable"]

COUNTER = "counter"


@dataclass(frozen=True)
class HotTable(Scenario):
    """Among ten operations, five alter by path, two by a loaded entity, two count, one reads."""

    name = "hot-table"
    about: ClassVar[str] = "all clients alter one table: a property of their own, and a counter that all share"

    def prepare(self, store: Store, ground: str) -> None:
        columns = [Column("id", "long")]
        store.tables.create(f"{ground}.s.hot", parents=True, columns=columns, properties={COUNTER: "0"})

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        path, own, held, number = f"{me.ground}.s.hot", f"client-{me.tag}", None, 0

        def count(within: Within) -> Table:
            table: Table = within.load(path)
            within.alter(table, SetProperty(COUNTER, str(int(table.properties[COUNTER]) + 1)))
            return table

        while True:
            number += 1
            what = me.dice.randrange(10)
            if what < 5:
                held = calls.alter(path, SetProperty(own, str(number))) or held
            elif what < 7 and held is not None:
                held = calls.alter(held, SetProperty(own, str(number))) or held
            elif what < 9:
                calls.transaction(path, count)
            else:
                held = calls.load(path) or held
            yield 0.0
