"""The programs with chains: functions and an alter of one process travel together, beside another process."""

from __future__ import annotations

from typing import Any

import metastore as ms
from metastore.errors import InvalidArgument
from tests.interleaving.batches import MemoryBatches
from tests.interleaving.process import Hand, Op
from tests.interleaving.programs import (
    DROP,
    RECREATE,
    RENAME,
    RENAME_BACK,
    RENAME_PARENT,
    Program,
    S,
    T,
    by_path,
    count,
    freeze,
)
from tests.interleaving.together import BEFORE, LOSABLE, together

__all__ = ["CHAINED"]


MOST_LOST = 4
"""How many attempts a transaction may lose: one more than without chains, in a chain that has no ticket."""


def _program(name: str, *processes: tuple[Op, ...], **options: Any) -> Program:
    options = {"most_lost": MOST_LOST, **options}
    return Program(name, processes, losable=LOSABLE, make=MemoryBatches, before=BEFORE, **options)


def _refuse(number: str) -> Op:
    """Raise an error in a transaction, if the count is there; else return the count."""

    def run(hand: Hand) -> object:
        def fn(tx: Any) -> str:
            counted: str = tx.tables.load(T).properties.get("n", "0")
            if counted == number:
                raise InvalidArgument(counted)
            return counted

        return hand.store.run(fn)

    return Op(f"refuse {number}", run, "t", counts=True)


def _more(tx: Any) -> object:
    """Count in the table and in its schema: a chain cannot carry that."""
    table = tx.tables.load(T)
    number = ms.SetProperty("n", str(int(table.properties.get("n", "0")) + 1))
    tx.schemas.alter(S, number)
    return tx.tables.alter(table, number)


COUNT, ALTER, REFUSE = count(hot=True), by_path("a", hot=True), _refuse("1")
REFUSE_2 = _refuse("2")
SET = Op("set the count", lambda h: h.store.tables.alter(T, ms.SetProperty("n", "5")))
B, C, D, E, F, G, H = (by_path(key, hot=True) for key in "bcdefgh")
MORE = Op("count in two places", lambda h: h.store.run(_more), "t", counts=True)
IN_A_ROW = (*together(COUNT, ALTER), *together(COUNT, REFUSE_2))
"""The second chain begins with what the first one left, without a ticket."""
CHAIN = together(COUNT, COUNT, ALTER)
FOUR_IN_A_ROW = (*together(COUNT, ALTER), *together(COUNT, B), *together(COUNT, C), *together(COUNT, D))
FOUR_OF_ALTERS = (*together(ALTER, B), *together(C, D), *together(F, G), *together(H, ALTER))
"""Three begin without a ticket. If they overlook an announced change, it loses more often than the bound says."""

CHAINED: tuple[Program, ...] = (
    _program("chain, alter", CHAIN, (SET,)),
    _program("chain, alter, a lost answer", together(COUNT, ALTER), (SET,), lose=(0,)),
    _program("chain, alter, a fault", CHAIN, (SET,), crash=(0,), lose=(0,), full=True),
    _program("chain, hot alter", CHAIN, (E,)),
    _program("chain, count", CHAIN, (COUNT,)),
    _program("chain, rename", CHAIN, (RENAME,)),
    _program("chain, rename of the parent", CHAIN, (RENAME_PARENT,)),
    _program("chain, drop", CHAIN, (DROP,)),
    _program("chain, freeze", CHAIN, (freeze(),)),
    _program("chain with an error, alter", together(COUNT, REFUSE, ALTER), (SET,)),
    _program("chain with an error, alter, a fault", together(COUNT, REFUSE, ALTER), (SET,), lose=(0,), full=True),
    _program("chain that is cut, alter", together(COUNT, MORE, ALTER), (SET,)),
    _program("chain that is cut, alter, a fault", together(COUNT, MORE, COUNT, ALTER), (SET,), lose=(0,), full=True),
    _program("chains in a row, alter", IN_A_ROW, (SET,)),
    _program("chains in a row, alter, a fault", IN_A_ROW, (SET,), crash=(0,), lose=(0,), full=True),
    _program("chains in a row, count", IN_A_ROW, (COUNT,)),
    _program("chains in a row, hot alter", IN_A_ROW, (E,)),
    _program("chains in a row, two hot alters", IN_A_ROW, (E, F), full=True),
    _program("chains in a row, rename and back", IN_A_ROW, (RENAME, RENAME_BACK), full=True),
    _program("chains in a row, drop and create", IN_A_ROW, (DROP, RECREATE)),
    _program("chains in a row, freeze", IN_A_ROW, (freeze(),)),
    _program("chains of alters in a row, alter", (*together(ALTER, B), *together(C, D)), (SET,), lose=(0,), full=True),
    _program("four chains in a row, hot alter", FOUR_IN_A_ROW, (E,)),
    _program("four chains of alters in a row, hot alter", FOUR_OF_ALTERS, (E,)),
    _program("two chains", together(COUNT, ALTER), together(COUNT, ALTER)),
)
