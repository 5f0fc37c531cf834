"""``drop-recreate``: clients drop and create the same few names again and again, while others read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from metastore.columns.column import Column
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.store import Store

__all__ = ["DropRecreate"]

_NAMES: Final = 4


@dataclass(frozen=True)
class DropRecreate(Scenario):
    """Four names; every third client only reads them, the others drop, create and alter them."""

    name = "drop-recreate"
    about: ClassVar[str] = "the same names are dropped and created again, while others read them"

    def prepare(self, store: Store, ground: str) -> None:
        store.schemas.create(f"{ground}.s")

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        schema, reader = f"{me.ground}.s", me.number % 3 == 2
        number = 0
        while True:
            number += 1
            path = f"{schema}.t{me.dice.randrange(_NAMES)}"
            what = me.dice.randrange(10)
            if reader or what == 9:
                self._read(calls, what, schema, path)
            elif what < 4:
                calls.create(path, columns=[Column("id", "long")], properties={"by": f"{me.tag}_{number}"})
            elif what < 7:
                calls.drop(path)
            else:
                calls.alter(path, SetProperty("by", f"{me.tag}_{number}"))
            yield 0.0

    def _read(self, calls: Calls, what: int, schema: str, path: str) -> None:
        if what % 5 == 0:
            calls.list(schema)
        elif what % 5 == 1:
            calls.exists(path)
        else:
            calls.load(path)
