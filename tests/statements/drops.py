"""The steps of a drop: operations of processes on a table that one of them has begun to drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations_with_replacement
from typing import Any

from metastore.managers.drops.pending import PendingDrop
from metastore.store import Store
from tests.interleaving.process import Hand
from tests.statements.explore import Program
from tests.statements.operations import Operation, T, named, prepare

__all__ = ["BACK", "BEGUN", "STEPS"]

_D = "drop, restore or purge table"


def _pending(store: Store) -> Mapping[str, Any]:
    """Make the tree, and announce the drop of a table; each process has the drop in hand, with its token."""
    given = dict(prepare(store))
    given["drop"] = store.tables.begin_drop(T)._drop
    return given


def _step(run: Callable[[PendingDrop], object]) -> Callable[[Hand], object]:
    def work(hand: Hand) -> object:
        return run(PendingDrop(hand.store._session, hand.given["drop"], held=True))

    return work


_BEGIN = Operation("begin a drop", _D, lambda h: h.store.tables.begin_drop(T).phase)
_ROLL_BACK = Operation("roll it back", _D, _step(PendingDrop.roll_back))
_STEPS_OF_IT = (
    Operation("start it", _D, _step(PendingDrop.started)),
    Operation("finish it", _D, _step(PendingDrop.finish)),
    _ROLL_BACK,
)
_WITH_IT = (
    *_STEPS_OF_IT,
    *(named(name) for name in ("load", "alter in hand", "rename the schema", "drop the schema", "rename a sibling")),
    Operation("create in its place", "create table", lambda h: h.store.tables.create(T)),
    Operation("restore it", _D, lambda h: h.store.tables.restore(T)),
)
_MEETS = (
    "load",
    "alter",
    "rename",
    "drop",
    "purge",
    "create a partition",
    "drop the schema",
    "rename the schema",
    "copy",
)

BEGUN: tuple[Program, ...] = tuple(
    [Program(f"begin a drop | {other.name}", ((_BEGIN,), (other,))) for other in (_BEGIN, *map(named, _MEETS))]
)
"""A drop is announced while something else is done."""
STEPS: tuple[Program, ...] = tuple(
    [
        Program(f"{one.name} | {other.name}", ((one,), (other,)), _pending)
        for one, other in combinations_with_replacement(_WITH_IT, 2)
        if one in _STEPS_OF_IT
    ]
)
"""A step is done while another one is, or something else."""
_AGAIN = Operation("begin again", _D, lambda h: h.store.tables.begin_drop(T).phase)
_ASKS_TWICE = ("load in hand", "alter", "drop", "create a partition", "list partitions", "load both")
_AGAINST = ("load", "load in hand", "drop")
BACK: tuple[Program, ...] = (
    *[Program(f"roll it back | {name}", ((_ROLL_BACK,), (named(name),)), _pending) for name in _ASKS_TWICE],
    *[Program(f"roll it back and begin again | {n}", ((_ROLL_BACK, _AGAIN), (named(n),)), _pending) for n in _AGAINST],
)
"""It comes back between a call's two questions: is it there, and is it being dropped?"""
