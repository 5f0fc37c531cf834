"""``caught-errors``: transactions try operations that may fail, catch the error, and write its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from metastore.clock import SYSTEM
from metastore.errors import EntityAlreadyExists, EntityNotFound, NotEmpty
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls, Within
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.store import Store

__all__ = ["CaughtErrors"]

_BOXES: Final = 3
_CAUGHT: Final = (EntityAlreadyExists, EntityNotFound, NotEmpty)


@dataclass(frozen=True)
class CaughtErrors(Scenario):
    """Boxes are schemas that hold at most one table. Each error that a transaction catches is one of its reads."""

    name = "caught-errors"
    about: ClassVar[str] = "transactions catch errors and write them down, while others make the causes come and go"

    def prepare(self, store: Store, ground: str) -> None:
        store.tables.create(f"{ground}.notes.note", parents=True)
        for number in range(_BOXES):
            store.tables.create(f"{ground}.box{number}.t", parents=True)

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        number = 0
        while True:
            number += 1
            box = f"{me.ground}.box{me.dice.randrange(_BOXES)}"
            what = me.dice.randrange(12)
            if what < 6:
                self._note(calls, me, f"{number} {box}", partial(_tried, what, box))
            else:
                self._change(calls, what, box)
            yield 0.0

    def _change(self, calls: Calls, what: int, box: str) -> None:
        """Fill a box, or empty it; create the box again if it is missing."""
        if what < 8:
            calls.drop(f"{box}.t")
        elif what < 9:
            calls.restore(f"{box}.t")
        elif what < 10:
            calls.drop(box, kind="schema")
        else:
            calls.create(f"{box}.t", operation_id=SYSTEM.operation_id())
            if calls.missed:
                calls.create(box, kind="schema", operation_id=SYSTEM.operation_id())

    def _note(self, calls: Calls, me: Me, what: str, attempt: Callable[[Within], object]) -> None:
        note = f"{me.ground}.notes.note"

        def block(within: Within) -> None:
            came: object = "done"
            try:
                attempt(within)
            except _CAUGHT as error:
                came = error.code
            within.alter(note, SetProperty(f"client-{me.tag}", f"{what} {came}"))

        calls.transaction(note, block)


def _tried(what: int, box: str, within: Within) -> object:
    """Drop a box that may hold a table, or restore or create its table."""
    if what < 3:
        return within.drop(box, kind="schema")
    return within.restore(f"{box}.t") if what < 5 else within.create(f"{box}.t")
