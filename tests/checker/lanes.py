"""Histories of any length that are as they should be, and faults to plant into them.

A history has some *lanes*: each is a metalake with a schema of tables and clients of its own, so that lanes can be made
side by side. Operation ``k`` of lane ``n`` takes effect at its own instant: then it reads or changes the lane's state.
Its call and its return lie around that instant, so that it overlaps with about ten others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["FAULTS", "Lane", "Step", "plant"]

_TICK: Final = 1_000
"""Nanoseconds between two operations of all lanes."""
_TABLES: Final = 200
_SETUP: Final = 8
"""Positions of a lane that its setup may take, before all operations."""
Row = dict[str, Any]


@dataclass
class Step:
    """One operation, and what it wrote."""

    operation: Row
    events: list[Row] = field(default_factory=list)


class Lane:
    """Lane ``number`` of ``lanes``."""

    def __init__(self, number: int, lanes: int, seed: int = 0) -> None:
        self._n, self._lanes = number, lanes
        self._dice = random.Random(f"{seed}/{number}")
        self._next_id = 10 + number
        self._live: dict[str, list[int]] = {}
        self._names: list[str] = []
        self.metalake = f"m{number}"
        self._schema = f"m{number}.c.s"
        self._upper: list[tuple[int, str, str]] = []

    def setup(self) -> list[Row]:
        """Return the events that were there before."""
        found = []
        for depth, (kind, path) in enumerate(
            [("metalake", self.metalake), ("catalog", f"{self.metalake}.c"), ("schema", self._schema)]
        ):
            entity_id = self._new_id()
            self._upper.append((entity_id, kind, path))
            seq = 1 + self._n * _SETUP + depth
            found.append(self._event(seq, None, kind, "create", entity_id, 1, None, path))
        return found

    def since(self) -> int:
        """Return the position before the first operation of all lanes."""
        return self._lanes * _SETUP

    def tables(self) -> list[Row]:
        """Return what is live at the end."""
        upper = [{"entity_id": i, "kind": kind, "path": path, "version": 1} for i, kind, path in self._upper]
        return upper + [
            {"entity_id": i, "kind": "table", "path": f"{self._schema}.{name}", "version": version}
            for name, (i, version) in self._live.items()
        ]

    def steps(self, count: int) -> Iterator[Step]:
        """Yield ``count`` operations, in the order in which they took effect."""
        for k in range(count):
            at = (k * self._lanes + self._n + 1) * _TICK
            span = 10 * _TICK
            operation = {
                "client": f"lane{self._n}-{k % 16}",
                "number": k // 16 + 1,
                "kind": "table",
                "clock": "here",
                "start": at - self._dice.randrange(1, span),
                "at": at / 1e9,
                "end": at + self._dice.randrange(1, span),
                "attempts": 0,
                "conflicts": [],
                "reads": [],
                "values": [],
            }
            yield self._one(operation, self.since() + 2 * (k * self._lanes + self._n) + 1)

    def _one(self, operation: Row, seq: int) -> Step:
        kind = self._dice.random()
        if kind < 0.8 or not self._names:
            return self._load(operation) if self._names and kind < 0.79 else self._create(operation, seq)
        name = self._dice.choice(self._names)
        path = f"{self._schema}.{name}"
        if kind < 0.9:
            return self._alter(operation, seq, name, path)
        if kind < 0.94:
            return self._transaction(operation, seq, name, path)
        if kind < 0.97 and len(self._names) > 1:
            return self._drop(operation, seq, name, path)
        return self._rename(operation, seq, name, path)

    def _load(self, operation: Row) -> Step:
        path = f"{self._schema}.{self._dice.choice(self._names)}"
        reads = [self._seen(path)]
        if self._dice.random() < 0.1:
            path = f"{self._schema}.never{self._dice.randrange(10)}"
            reads = [{"path": path, "there": False, "entity_id": None, "version": None}]
        return Step(operation | {"action": "load", "path": path, "outcome": "read", "reads": reads})

    def _create(self, operation: Row, seq: int) -> Step:
        if len(self._names) >= _TABLES:
            return self._load(operation)
        entity_id = self._new_id()
        name = f"t{entity_id}"
        self._live[name] = [entity_id, 1]
        self._names.append(name)
        return self._wrote(operation, seq, "create", entity_id, 1, None, f"{self._schema}.{name}")

    def _alter(self, operation: Row, seq: int, name: str, path: str) -> Step:
        entity = self._live[name]
        entity[1] += 1
        return self._wrote(operation, seq, "alter", entity[0], entity[1], path, path)

    def _transaction(self, operation: Row, seq: int, name: str, path: str) -> Step:
        others = self._dice.sample(self._names, min(2, len(self._names)))
        reads = [self._seen(f"{self._schema}.{other}") for other in others]
        step = self._alter(operation, seq, name, path)
        step.operation |= {"action": "transaction", "reads": reads}
        return step

    def _drop(self, operation: Row, seq: int, name: str, path: str) -> Step:
        entity_id, version = self._live.pop(name)
        self._names.remove(name)
        return self._wrote(operation, seq, "drop", entity_id, version + 1, path, None)

    def _rename(self, operation: Row, seq: int, name: str, path: str) -> Step:
        entity = self._live.pop(name)
        entity[1] += 1
        to = f"t{entity[0]}v{entity[1]}"
        self._live[to] = entity
        self._names[self._names.index(name)] = to
        return self._wrote(operation, seq, "rename", entity[0], entity[1], path, f"{self._schema}.{to}")

    def _seen(self, path: str) -> Row:
        entity_id, version = self._live[path.rpartition(".")[2]]
        return {"path": path, "there": True, "entity_id": entity_id, "version": version}

    def _wrote(
        self, operation: Row, seq: int, action: str, entity_id: int, version: int, before: str | None, after: str | None
    ) -> Step:
        operation |= {"action": action, "path": before or after, "outcome": "applied", "attempts": 1}
        operation |= {"entity_id": entity_id, "version_after": version}
        principal = f"{operation['client']}/{operation['number']}"
        return Step(operation, [self._event(seq, principal, "table", action, entity_id, version, before, after)])

    def _event(
        self,
        seq: int,
        principal: str | None,
        kind: str,
        action: str,
        entity_id: int,
        version: int,
        before: str | None,
        after: str | None,
    ) -> Row:
        return {
            "seq": seq,
            "operation_id": f"o{seq}",
            "principal": principal,
            "kind": kind,
            "action": action,
            "entity_id": entity_id,
            "owner_id": None,
            "version": version,
            "path_before": before,
            "path_after": after,
            "time": seq,
        }

    def _new_id(self) -> int:
        self._next_id += self._lanes
        return self._next_id


def _dropped_write(steps: list[Step], at: int) -> None:
    """The feed has nothing of an acknowledged operation."""
    _next(steps, at, "alter").events.clear()


def _doubled_write(steps: list[Step], at: int) -> None:
    """An operation was applied twice; all later versions are one higher."""
    step = _next(steps, at, "alter")
    (event,) = step.events
    for later in steps[steps.index(step) + 1 :]:
        for one in later.events:
            if one["entity_id"] == event["entity_id"]:
                one["version"] += 1
        for row in [later.operation, *later.operation["reads"]]:
            key = "version_after" if "version_after" in row else "version"
            if row.get("entity_id") == event["entity_id"] and row.get(key) is not None:
                row[key] += 1
    step.events.append(event | {"seq": event["seq"] + 1, "operation_id": "again", "version": event["version"] + 1})


def _stale_read(steps: list[Step], at: int) -> None:
    """A read shows a state that was overwritten before the call."""
    step = _next(steps, at, "alter")
    for later in steps[steps.index(step) + 1 :]:
        for seen in later.operation["reads"]:
            late = later.operation["start"] > step.operation["end"] and later.operation["action"] == "load"
            if late and seen["entity_id"] == step.operation["entity_id"]:
                seen["version"] = step.operation["version_after"] - 1
                return
    raise AssertionError("nobody reads it again")


def _skewed_pair(steps: list[Step], at: int) -> None:
    """A transaction committed although what it had read was overwritten."""
    step = _next(steps, at, "transaction")
    seen = next(one for one in step.operation["reads"] if one["version"] > 1)
    seen["version"] -= 1


def _reordered_feed(steps: list[Step], at: int) -> None:
    """Two events have changed places."""
    first = _next(steps, at, "alter")
    second = next(
        one for one in steps[steps.index(first) + 1 :] if one.events and one.operation["start"] > first.operation["end"]
    )
    one, other = first.events[0], second.events[0]
    one["seq"], other["seq"] = other["seq"], one["seq"]


def _next(steps: list[Step], at: int, action: str) -> Step:
    return next(
        step
        for step in steps[at:]
        if step.operation["action"] == action
        and step.events
        and (action != "transaction" or any(one["version"] > 1 for one in step.operation["reads"]))
    )


FAULTS: Final = {
    "dropped write": (_dropped_write, "once"),
    "doubled write": (_doubled_write, "once"),
    "stale read": (_stale_read, "read"),
    "skewed pair": (_skewed_pair, "cycle"),
    "reordered feed": (_reordered_feed, "order"),
}
"""Each fault, and the rule that must find it."""


def plant(fault: str, steps: list[Step], at: int) -> None:
    """Plant a fault after ``at`` operations."""
    FAULTS[fault][0](steps, at)
