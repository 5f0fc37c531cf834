"""``rename-storm``: some clients rename and move schemas while others write their tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from metastore.columns.column import Column
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.loadtest.scenarios.whereabouts import Whereabouts
from metastore.store import Store

__all__ = ["RenameStorm"]

_SCHEMAS: Final = 4
_TABLES: Final = 8
_STORM: Final = 4
"""Every fourth client renames, and the others write; a single client does both."""
_PAUSE: Final = 0.02
"""Seconds between two renames of one client, so that the writers make progress."""


@dataclass(frozen=True)
class RenameStorm(Scenario):
    """Four schemas, each at one of four paths: below ``left`` or ``right``, as ``s`` or as ``x``."""

    name = "rename-storm"
    about: ClassVar[str] = "schemas are renamed and moved under constant writes to their tables"

    def prepare(self, store: Store, ground: str) -> None:
        store.schemas.create(f"{ground}.left")
        store.schemas.create(f"{ground}.right")
        for n in range(_SCHEMAS):
            schema = store.schemas.create(f"{ground}.left.s{n}")
            store.tables.create_many(schema, ({"name": f"t{i}", "columns": [_ID]} for i in range(_TABLES)))

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        schemas = [
            Whereabouts([f"{me.ground}.{side}.{name}{n}" for name in "sx" for side in ("left", "right")])
            for n in range(_SCHEMAS)
        ]
        renames = me.number % _STORM == 0
        number = 0
        while True:
            number += 1
            schema = me.dice.choice(schemas)
            if renames and (me.clients > 1 or me.dice.random() < 0.2):
                to = me.dice.choice(schema.others())
                if calls.rename(schema.here, to, kind="schema") is not None:
                    schema.elsewhere(to)
                elif calls.missed:
                    schema.missed()
                yield _PAUSE
                continue
            self._write(calls, me, schema.here, number)
            if calls.missed:
                schema.missed()
            yield 0.0

    def _write(self, calls: Calls, me: Me, schema: str, number: int) -> None:
        what = me.dice.randrange(10)
        if what < 5:
            table = f"{schema}.t{me.dice.randrange(_TABLES)}"
            calls.alter(table, SetProperty(f"client-{me.tag}", str(number)))
        elif what < 8:
            calls.create(f"{schema}.n{me.tag}_{number}", columns=[_ID])
        elif what < 9:
            calls.drop(f"{schema}.n{me.tag}_{me.dice.randrange(number)}")
        else:
            calls.load(f"{schema}.t{me.dice.randrange(_TABLES)}")


_ID: Final = Column("id", "long")
