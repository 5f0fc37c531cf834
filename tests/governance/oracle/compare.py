"""Compare what users' calls do with the rules, decision by decision; now and then a right changes within the call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import metastore as ms
from metastore import Store
from tests.governance.oracle.call import Call, outcome
from tests.governance.oracle.changes import change
from tests.governance.oracle.reads import READS
from tests.governance.oracle.world import USERS, World
from tests.governance.oracle.writes import WRITES

__all__ = ["Difference", "compare"]

_CALLS = {**READS, **WRITES}
_CHANGED, _RACED = 0.3, 0.15
"""How often a step is a change instead of a call, and how often a right changes within the call."""


@dataclass(frozen=True)
class Difference:
    """A call that did what the rules do not say."""

    seed: int
    at: int
    """After how many decisions."""
    told: str

    def __str__(self) -> str:
        return f"seed {self.seed}, decision {self.at}: {self.told}"


def compare(stores: list[Store], seed: int, decisions: int) -> Iterator[Difference | int]:
    """Yield each difference, and how many decisions were compared after each step, until there were ``decisions``.

    ``stores``: the trusted one, and those that serve the users; each remembers by itself what it has read.
    """
    chance = random.Random(seed)
    world = World(stores[0], chance)
    views = [{name: store.as_user(name) for name in USERS} for store in stores]
    made, last = 0, list[str]()
    for _ in range(12):
        _changed(world, last)
    while made < decisions:
        if chance.random() < _CHANGED:
            _changed(world, last)
            continue
        called = _chosen(world)
        asked = chance.choice(views)[called.user]
        made += called.candidates
        told = (_raced if chance.random() < _RACED else _judged)(world, called, asked)
        if told is not None:
            yield Difference(seed, made, f"{told}; changes before: {'; '.join(last[-12:])}")
            return  # the sets may be wrong from here on
        yield called.candidates


def _changed(world: World, last: list[str]) -> None:
    act = change(world)
    if act is not None:
        act()
        last.append(act.what)


def _chosen(world: World) -> Call:
    while True:
        with suppress(IndexError):  # there is nothing to ask for
            kind = world.chance.choices(list(_CALLS), list(_CALLS.values()))[0]
            return kind(world, world.chance.choice(USERS))


def _judged(world: World, called: Call, asked: Store) -> str | None:
    wanted = frozenset(called.wanted(world.rules))
    found = outcome(called, asked)
    if found == {"done"} and called.then is not None:
        called.then()
    return None if found == wanted else _told(world, called, found, wanted)


def _raced(world: World, called: Call, asked: Store) -> str | None:
    """Let a change be made before one of the call's questions to the database.

    Then each decision is that of before or that of after. What is written after the change has the rights of after.
    """
    act, before = change(world), deepcopy(world.rules)
    if act is None:
        return None
    with _changing(asked, act, world.chance.randint(0, 3)) as raced:
        try:
            found = outcome(called, asked)
        except (ms.VersionConflict, ms.InvalidArgument):  # a transaction, or a tree that is another by now
            found = None
    first, then = frozenset(called.wanted(before)), frozenset(called.wanted(world.rules))
    if found is None:
        return None if raced.was else f"{called.what} as {called.user} failed by itself"
    if found == {"done"} and called.then is not None:
        if raced.was and raced.committed and then != {"done"}:
            return _told(world, called, found, then) + f", while: {act.what}"
        called.then()
    fits = found <= first | then and found >= first & then
    return None if fits else _told(world, called, found, then) + f", before: {_short(first)}, while: {act.what}"


def _told(world: World, called: Call, found: frozenset[object], wanted: frozenset[object]) -> str:
    return f"{called.what} as {called.user}: {_short(found)}, and the rules say {_short(wanted)}"


def _short(found: frozenset[object]) -> str:
    return str(sorted(found, key=str))


class _Racing:
    """A backend that makes a change before its n-th call."""

    def __init__(self, backend: Any, act: Callable[[], object], at: int) -> None:
        self._backend, self._act, self._left = backend, act, at
        self.was = self.committed = False
        """The change was made; a commit was sent after it."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found

        def called(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self.was:
                self.was = True
                self._act()
            self.committed = self.committed or (self.was and name in ("commit", "help"))
            return found(*args, **options)

        return called


@contextmanager
def _changing(store: Store, act: Callable[[], object], at: int) -> Iterator[_Racing]:
    """Let ``act`` be called before the n-th question of the user's next calls."""
    access: Any = store._session.access
    seen: Any = store._session.backend
    kept = access.backend, seen._base
    racing = _Racing(kept[0], act, at)
    access.backend = seen._base = racing
    try:
        yield racing
    finally:
        access.backend, seen._base = kept
