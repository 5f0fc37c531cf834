"""Programs whose operations travel together: two processes with a batch of two each, and operations between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metastore.store import Store
from tests.interleaving.batches import MemoryBatches
from tests.interleaving.process import Op
from tests.interleaving.programs import (
    CREATE,
    CREATE_TOO,
    DROP,
    RENAME,
    RENAME_PARENT,
    Program,
    S,
    by_entity,
    by_path,
    count,
    freeze,
    swap,
)
from tests.interleaving.world import WRITES

__all__ = ["TOGETHER", "TOO_LARGE"]

BEFORE = 2
"""How many batches a request loses before it is announced, in these programs.

The library's number is larger, and the protocol does not depend on it: with a small one, few steps lead to what is
announced.
"""
U, V = f"{S}.b", "lake.cat.o.v"
"""Another table in the schema, and one in another schema."""
R, OTHER_S = "lake.cat.r", "lake.cat.o"
"""Where the schema stands after its rename, and the schema that then takes its place."""
LOSABLE = (*WRITES, "write_together")


def _three(store: Store) -> Mapping[str, Any]:
    store.schemas.create("lake.cat.o")
    return {"u": store.tables.create(U), "v": store.tables.create(V)}


def _twins(store: Store) -> Mapping[str, Any]:
    """Make another schema with a table of the same name."""
    store.schemas.create(OTHER_S)
    store.tables.create(f"{OTHER_S}.t", comment="twin")
    return {}


def together(*ops: Op) -> tuple[Op, ...]:
    """Return operations that wait together."""
    return (*[replace(op, with_next=True) for op in ops[:-1]], ops[-1])


def _program(name: str, *processes: tuple[Op, ...], **options: Any) -> Program:
    options = {"setup": _three, **options}
    return Program(name, processes, losable=LOSABLE, make=MemoryBatches, before=BEFORE, **options)


A, B, C, D, F, G = (by_path(key) for key in "abcdfg")
EA, EB = by_entity("a"), by_entity("b")
A_IN_U, B_IN_U, A_IN_V, B_IN_V = by_path("a", at=U), by_path("b", at=U), by_path("a", at=V), by_path("b", at=V)
E_HOT, F_HOT = by_path("e", hot=True), by_path("f", hot=True)
DROP_U = Op("drop u", lambda h: h.store.tables.drop(U))
RENAME_O = Op("rename o", lambda h: bool(h.store.schemas.rename("lake.cat.o", "q")))
AB, CD = together(A, B), together(C, D)
LOOK = Op("look at the new path", lambda h: h.store.tables.exists(f"{R}.t"))
"""Where the old path led is known from the start: behind this, one process knows both."""
A_IN_R, B_IN_R = by_path("a", at=f"{R}.t"), by_path("b", at=f"{R}.t")
DROP_IN_R = Op("drop by the new path", lambda h: h.store.tables.drop(f"{R}.t"))
RENAME_IN_R = Op("rename by the new path", lambda h: h.store.tables.rename(f"{R}.t", "u"))
O_TO_S = Op("rename o to s", lambda h: bool(h.store.schemas.rename(OTHER_S, "s")))
S_TO_R = Op("rename s to r", lambda h: bool(h.store.schemas.rename(S, "r")))
SWAP = (S_TO_R, O_TO_S)

TOGETHER: tuple[Program, ...] = (
    _program("batches on one table", AB, CD, crash=(0, 1), lose=(0, 1)),
    _program("batches on two tables", together(A, A_IN_U), together(B_IN_U, B), crash=(0, 1), lose=(0, 1)),
    _program("batches of swaps", together(swap("0", "1"), swap("1", "2")), together(swap("0", "2"), B)),
    _program("batches of entities in hand", together(EA, EB), together(EB, C)),
    _program("batches in two schemas, rename of one", together(A, A_IN_V), together(B_IN_V, B), (RENAME_O,)),
    _program("batches, rename of the parent", AB, CD, (RENAME_PARENT,)),
    _program("batch, rename", AB, (RENAME,), crash=(0, 1), lose=(0, 1)),
    _program("batch, hot alter", AB, (E_HOT,)),
    _program("hot alter, three batches in a row", (E_HOT,), (*AB, *CD, *together(F, G))),
    _program("hot count, three batches in a row", (count(hot=True),), (*AB, *CD, *together(F, G)), most_lost=1),
    _program("batch, freeze", AB, (freeze(),)),
    _program("batches of creates", together(CREATE, CREATE_TOO), together(CREATE_TOO, CREATE), lose=(0, 1)),
    _program("batch of creates, rename of the parent", together(CREATE, CREATE_TOO), (RENAME_PARENT,), crash=(0, 1)),
    _program("batches of drops, alter", together(DROP, DROP_U), together(DROP_U, DROP), (A,)),
    _program("batches, rename", AB, CD, (RENAME,)),
    _program("batches, hot alter", AB, CD, (E_HOT,), full=True),
    _program("batches on two tables, freeze", together(A, A_IN_U), together(B_IN_U, B), (freeze(),), full=True),
    _program("batch, hot alter, a fault", AB, (E_HOT,), crash=(0, 1), lose=(0, 1)),
    _program("batch, two hot alters in a row", AB, (E_HOT, F_HOT)),
    _program("batch, freeze, a crash", AB, (freeze(),), crash=(0, 1)),
    _program("old path and new path, rename of the parent", (LOOK, *together(A, B_IN_R)), (S_TO_R,)),
    _program("new path and old path, swap of the parents", (LOOK, *together(A_IN_R, B)), SWAP, setup=_twins),
    _program("old path, new path and entity, swap", (LOOK, *together(A, B_IN_R, by_entity("c"))), SWAP, setup=_twins),
    _program("drops by an old and a new path, swap", (LOOK, *together(DROP, DROP_IN_R)), SWAP, setup=_twins),
    _program("old path and rename by a new one, swap", (LOOK, *together(A, RENAME_IN_R)), SWAP, setup=_twins),
    _program(
        "batches in a row, by an old and a new name, rename", (*AB, *together(C, by_path("d", at=f"{S}.u"))), (RENAME,)
    ),
    _program("batch of an alter and a rename, alter", together(A, RENAME), (B,), lose=(0,)),
    _program("batch of an alter and a drop, alter", together(A, DROP), (B,)),
    _program("batch of drops, hot alter", together(DROP, DROP_U), (E_HOT,), lose=(0, 1)),
)
TOO_LARGE = _program("batches on one table, freeze", AB, CD, (freeze(),))
"""It has millions of states: the shortest schedules are explored."""
