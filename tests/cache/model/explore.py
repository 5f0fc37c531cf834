"""Explore the model: every schedule of a small case, or random schedules of a large one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.cache.model.protocol import start
from tests.cache.model.world import Blocked, Setting, Stale, World

__all__ = ["Explored", "every_schedule", "given_schedule", "random_schedules", "stopped_members"]


_ROUNDS = 40
"""How many turns everybody has in a tick at most."""


class Explored(NamedTuple):
    """What was found."""

    states: int
    found: str | None
    """The first stale read, with its schedule; None: there is none."""


def _replayed(setting: Setting, schedule: list[str]) -> World:
    world = World(setting)
    start(world)
    for what in schedule:
        world.happen(what)
    return world


def every_schedule(setting: Setting, first: int | None = None) -> Explored:
    """Visit every state that a case can reach; ``first``: only so many."""
    visited: set[int] = set()
    stack: list[list[str]] = [[]]
    while stack:
        schedule = stack.pop()
        try:
            world = _replayed(setting, schedule)
            while _is_new(world, visited):
                # follow one choice at once, and come back for the others: a replay costs more than a step
                choices = world.choices()
                stack += [[*schedule, what] for what in choices[1:]]
                if not choices:
                    break
                schedule = [*schedule, choices[0]]
                world.happen(choices[0])
        except Stale as stale:
            return Explored(len(visited), f"{stale}: {' > '.join(schedule)}")
        if first is not None and len(visited) >= first:
            break
    return Explored(len(visited), None)


def _is_new(world: World, visited: set[int]) -> bool:
    state = hash(world.state())
    if state in visited:
        return False
    visited.add(state)
    return True


def given_schedule(setting: Setting, turns: Sequence[tuple[str, int]]) -> Explored:
    """Let processes take so many steps, one after the other. Each of them must be able to."""
    world = World(setting)
    start(world)
    schedule: list[str] = []
    try:
        for name, steps in turns:
            for _ in range(steps):
                assert name in world.choices(), f"{name} cannot go on after {schedule}"
                schedule.append(name)
                world.happen(name)
    except Stale as stale:
        return Explored(len(schedule), f"{stale}: {' > '.join(schedule)}")
    return Explored(len(schedule), None)


def random_schedules(setting: Setting, count: int, seed: int, steps: int = 400) -> Explored:
    """Follow ``count`` random schedules, each until its readers and writers are done."""
    taken = 0
    for n in range(count):
        chance = random.Random(f"{seed} {n}")
        world = World(setting, chance)
        start(world)
        weights = _Weights([chance.choice((0.2, 1.0, 4.0)) for _ in range(64)])
        schedule: list[str] = []
        try:
            for _ in range(steps):
                if not any(not name.startswith(("member", "timer")) for name in world.processes):
                    break
                choices = world.choices()
                if not choices:
                    break
                what = chance.choices(choices, [weights[c] for c in choices])[0]
                schedule.append(what)
                world.happen(what)
                taken += 1
        except Stale as stale:
            return Explored(taken, f"seed {seed} {n}: {stale}: {' > '.join(schedule)}")
    return Explored(taken, None)


def stopped_members(setting: Setting, count: int, seed: int, steps: int = 150) -> Explored:
    """Follow ``count`` random schedules for a while; then stop some members for good, and let all others go on fairly.

    From then on a tick comes when nobody else can do anything, or had many turns. No writer may wait beyond the bound.
    """
    taken = 0
    for n in range(count):
        chance = random.Random(f"{seed} {n}")
        world = World(replace(setting, ticks=10**6), chance)
        start(world)
        schedule: list[str] = []
        try:
            for _ in range(chance.randrange(steps)):
                what = chance.choice(world.choices() or ["tick"])
                schedule.append(what)
                world.happen(what)
                taken += 1
            stopped = {f"member {m.number}" for m in world.members if chance.random() < 0.5}
            taken += _fairly(world, stopped)
        except Stale as stale:
            return Explored(taken, f"seed {seed} {n}: {stale}: {' > '.join(schedule)}")
        except Blocked as blocked:
            return Explored(taken, f"seed {seed} {n}: {blocked}: {' > '.join(schedule)}, then without {stopped}")
    return Explored(taken, None)


def _fairly(world: World, stopped: set[str]) -> int:
    """Let everybody but the stopped ones go on until no writer is left; return how many steps that took."""
    since, taken, rounds = world.time, 0, 0
    while any(name.startswith("writer") for name in world.processes):
        able = [name for name, ready in world.waits.items() if name not in stopped and (ready is None or ready())]
        for name in able:
            if name in world.processes and ((ready := world.waits[name]) is None or ready()):
                world.happen(name)
        taken, rounds = taken + len(able), rounds + 1
        if not able or rounds > _ROUNDS:
            rounds = 0
            world.happen("tick")
            world.check_waits(since)
    return taken


class _Weights(dict[str, float]):
    """How likely each choice is: some processes are slow in a schedule, faults are rare. Each is computed once."""

    def __init__(self, speeds: Sequence[float]) -> None:
        self._speeds = speeds

    def __missing__(self, what: str) -> float:
        weight = 0.05
        if what == "tick":
            weight = 0.5
        elif what.startswith(("reader", "writer", "member", "timer")):
            weight = self._speeds[_number(what) % len(self._speeds)]
        self[what] = weight
        return weight


def _number(text: str) -> int:
    """Return a number for a name, the same in each process."""
    return sum(ord(c) * (n + 1) for n, c in enumerate(text))
