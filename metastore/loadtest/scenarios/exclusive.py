"""``exclusive``: some clients freeze a schema or rename its parent while others write its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from metastore.columns.column import Column
from metastore.kinds.change import SetProperty
from metastore.kinds.table.kind import Table
from metastore.loadtest.calls import Calls, Within
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.loadtest.scenarios.whereabouts import Whereabouts
from metastore.store import Store

__all__ = ["Exclusive"]

_TABLES: Final = 8
_FREEZERS: Final = 8
"""Every eighth client freezes the schema, the third client renames its parent, and all others write."""
_RENAMER: Final = 2
_PAUSES: Final = {0: 0.05, _RENAMER: 0.4}
"""Seconds between two freezes, or renames, of one client, on average, so that the others make progress. The time is
random: otherwise a client that looks for the parent may keep in step with its renames, and never find it.
"""
_TTL: Final = 5.0
_TIMEOUT: Final = 5.0


@dataclass(frozen=True)
class Exclusive(Scenario):
    """A schema in a schema. A client that freezes it changes each of its tables in one commit."""

    name = "exclusive"
    about: ClassVar[str] = "freezes of a schema and renames of its parent, beside writes to its tables"

    def prepare(self, store: Store, ground: str) -> None:
        schema = store.schemas.create(f"{ground}.above.s", parents=True)
        store.tables.create_many(schema, ({"name": f"t{i}", "columns": [Column("id", "long")]} for i in range(_TABLES)))

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        parent = Whereabouts([f"{me.ground}.above", f"{me.ground}.beyond"])
        role = _RENAMER if me.number == _RENAMER else min(me.number % _FREEZERS, 1)
        number = 0
        while True:
            number += 1
            if me.clients == 1:
                role = me.dice.choice([0, _RENAMER, 1, 1, 1, 1])
            if role == 0:
                self._freeze(calls, f"{parent.here}.s", str(number))
            elif role == _RENAMER:
                (to,) = parent.others()
                if calls.rename(parent.here, to, kind="schema") is not None:
                    parent.elsewhere(to)
            else:
                self._write(calls, me, f"{parent.here}.s", number)
            if calls.missed:
                parent.missed()
            yield 0.0 if calls.missed else me.dice.uniform(0, 2 * _PAUSES.get(role, 0.0))

    def _freeze(self, calls: Calls, schema: str, value: str) -> None:
        def change(within: Within) -> None:
            for i in range(_TABLES):
                table: Table = within.load(f"{schema}.t{i}")
                within.alter(table, SetProperty("frozen", value))

        calls.freeze(schema, change, ttl=_TTL, timeout=_TIMEOUT)

    def _write(self, calls: Calls, me: Me, schema: str, number: int) -> None:
        what = me.dice.randrange(10)
        if what < 6:
            table = f"{schema}.t{me.dice.randrange(_TABLES)}"
            calls.alter(table, SetProperty(f"client-{me.tag}", str(number)))
        elif what < 8:
            calls.create(f"{schema}.n{me.tag}_{number}", columns=[Column("id", "long")])
        else:
            calls.drop(f"{schema}.n{me.tag}_{me.dice.randrange(number)}")
