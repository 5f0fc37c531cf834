"""One process through all windows of a crew: in each it locks and unlocks with one kind of lock, until it is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import metastore as ms
from tests.bench.contention.crew import Meet
from tests.bench.contention.window import Told
from tests.bench.leases.cells import Cell
from tests.bench.leases.locker import DEADLINE, Locker
from tests.bench.leases.lockers import Lockers
from tests.bench.leases.places import Places

__all__ = ["enter", "leave", "windows"]

WARM = 6
"""Operations of each kind before the first window: psycopg prepares a statement at its third execution."""
FREE = 0


def windows(
    meet: Meet, places: Places, peers: Sequence[str], cells: Sequence[Cell], number: int, length: float, inside: Any
) -> list[Told]:
    """Measure ``cells`` one after the other, each for ``length`` seconds after all have met.

    ``inside`` is a number in memory that all share: the holder of the one name writes its own, so that two holders
    at once are seen.
    """
    with Lockers(places, peers, number) as lockers:
        for peer in peers:
            _warm(lockers[peer], f"warm {number}")
        told = []
        for cell in cells:
            alone = cell.load.spread == "many" or cell.load.processes == 1
            name, guard = (f"many {number}", None) if alone else ("one", inside)
            told.append(_window(meet, lockers[cell.peer], name, cell.load.work == "commit", length, guard, number + 1))
    return told


def _warm(locker: Locker, name: str) -> None:
    for _ in range(WARM):
        locker.acquire(name)
        locker.commit()
        locker.release()


def _window(meet: Meet, locker: Locker, name: str, commits: bool, length: float, inside: Any, me: int) -> Told:
    told = Told()
    meet()
    ends = time.monotonic() + length
    while (begun := time.monotonic()) < ends:
        error = _once(locker, name, commits, inside, me)
        over = time.monotonic()
        told.attempts.append(1)
        if error:
            told.errors[error] += 1
            told.seconds.append(DEADLINE)
        else:
            told.seconds.append(over - begun)
            told.applied += 1
            told.in_time += over <= ends
    return told


def _once(locker: Locker, name: str, commits: bool, inside: Any, me: int) -> str:
    """Acquire, commit if that is wanted, release; return what went wrong."""
    try:
        if not locker.acquire(name):
            return "waited too long"
        if inside is not None:
            enter(inside, me)
        try:
            if commits:
                locker.commit()
        finally:
            if inside is not None:
                leave(inside, me)
            locker.release()
    except ms.MetastoreError as error:
        return type(error).__name__
    return ""


def enter(inside: Any, me: int) -> None:
    """Note that process ``me`` holds the name; raise if another does."""
    if inside.value != FREE:
        raise RuntimeError(f"NOT EXCLUSIVE: process {inside.value - 1} holds it, and so does {me - 1}")
    inside.value = me


def leave(inside: Any, me: int) -> None:
    """Note that ``me`` holds it no more; raise if another came meanwhile."""
    if inside.value != me:
        raise RuntimeError(f"NOT EXCLUSIVE: process {inside.value - 1} came while {me - 1} held it")
    inside.value = FREE
