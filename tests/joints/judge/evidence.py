"""All that the rules look at: the calls, the feed, and which call wrote what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from metastore.checker.event import Event
from metastore.checker.finding import Finding
from metastore.checker.tree import Placed, Tree
from tests.joints.judge.call import Call
from tests.joints.judge.calls import read
from tests.joints.record import kept_events
from tests.joints.starved import Starved

__all__ = ["Evidence", "Found"]

_ENDS: Final = ("finish", "roll_back")
_BEFORE: Final = "world"
"""The principal of what the run began with."""


@dataclass(frozen=True)
class Found:
    """One contradiction: what is wrong, and the fewest calls that cannot all be true."""

    rule: str
    message: str
    calls: tuple[str, ...] = ()
    at: int = 0
    """When the last of them began: what comes later may follow from it."""


@dataclass(frozen=True)
class Evidence:
    """The record of a run."""

    calls: list[Call]
    """By their start."""
    missing: list[str]
    """What is missing of the record."""
    events: list[Event]
    """By position."""
    documents: list[dict[str, Any] | None]
    """Of each event."""
    weather: list[dict[str, Any]]
    positions: list[str]
    """Of the whole feed, as the store gives it."""
    run: dict[str, Any]
    violations: list[str]
    starved: Starved

    @classmethod
    def of(cls, folder: Path) -> Evidence:
        """Read a record folder."""
        journals, kept = read(folder), kept_events(folder)
        weather = [json.loads(line) for line in (folder / "weather.jsonl").read_text().splitlines()]
        files = ("positions.json", "run.json", "verify.json")
        positions, run, violations = (json.loads((folder / name).read_text()) for name in files)
        missing = journals.missing + [f"a client died: {line}" for line in _died(folder)]
        events, documents = [event for event, _ in kept], [document for _, document in kept]
        return cls(journals.calls, missing, events, documents, weather, positions, run, violations, Starved(folder))

    def starved_in(self, call: Call) -> float:
        """Return how long a call's process was ready to go on with it, and got no processor (seconds)."""
        return self.starved.between(call.client.partition("-")[0], call.start, call.end or call.start)

    @cached_property
    def began(self) -> int:
        """When the first call began, on the clock of the calls."""
        return min([call.start for call in self.calls], default=0)

    @cached_property
    def since(self) -> int:
        """The position before the first call."""
        return max([event.seq for event in self.events if event.principal == _BEFORE], default=0)

    @cached_property
    def writer(self) -> dict[int, Call]:
        """The call that wrote each event, by position; without the events of nobody."""
        by_name = {call.principal: call for call in self.calls}
        by_operation = {call.operation: call for call in self.calls if call.operation}
        begun: dict[str, str] = {}
        found = {}
        for event in self.events:
            call = by_operation.get(event.operation_id) or by_name.get(event.principal or "")
            if call is None:
                continue
            first = begun.setdefault(call.principal, event.operation_id)
            if call.action == "begin_drop" and first != event.operation_id:
                call = self._ended(call, by_name)  # its later steps carry the principal of the first
            found[event.seq] = call
        return found

    def _ended(self, call: Call, by_name: dict[str, Call]) -> Call:
        later = by_name.get(f"{call.client}/{call.number + 1}")
        return later if later is not None and later.action in _ENDS else call

    @cached_property
    def replayed(self) -> tuple[list[Placed], list[Finding]]:
        """The effect of each event, and what is wrong with the feed by itself."""
        tree, placed, findings = Tree(), list[Placed](), list[Finding]()
        for event in self.events:
            writer = self.writer.get(event.seq)
            effect, wrong = tree.apply(event if writer is None else event._replace(asked=writer.action))
            placed.append(effect)
            findings += wrong
        return placed, findings

    @cached_property
    def parents(self) -> dict[int, int]:
        """What each entity was made below."""
        made = zip(self.events, self.replayed[0], strict=True)
        return {event.entity_id: effect.names[0].parent_id for event, effect in made if _makes(event, effect)}

    @cached_property
    def written(self) -> dict[str, list[Event]]:
        """The events of each call, by the call's name."""
        found: dict[str, list[Event]] = {}
        for event in self.events:
            if event.seq in self.writer:
                found.setdefault(self.writer[event.seq].principal, []).append(event)
        return found

    def found(self, rule: str, message: str, *calls: Call | None) -> Found:
        """Return a contradiction between calls."""
        known = [call for call in calls if call is not None]
        return Found(
            rule, message, tuple([self.line(call) for call in known]), max([c.start for c in known], default=0)
        )

    def line(self, call: Call) -> str:
        """Return a line about a call, with what it wrote."""
        wrote = "".join(
            f"; wrote {event.action} {event.path_after or event.path_before} (entity {event.entity_id}, "
            f"version {event.version}) at {event.seq}"
            for event in self.written.get(call.principal, ())[:3]
        )
        return call.text(self.began) + wrote


def _makes(event: Event, effect: Placed) -> bool:
    return event.action == "create" and event.owner_id is None and bool(effect.names)


def _died(folder: Path) -> list[str]:
    path = folder / "died"
    return [path.read_text()] if path.exists() else []
