"""Whether somebody had won where an attempt lost.

An attempt that expected a version of an entity lost justly if somebody else's commit made the next one, and one that
found its name taken if that is what its client was told in the end (a read, and checked as such). One that lost on
anything else (an ancestor, a mark, a name, a deadlock) did if an operation on what it needs was under way with it, or
an exclusive operation had come before it: what it had in hand may be older than its call. A freeze is one, that of its
own client too: after it the others have their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from metastore.checker.finding import Finding
from metastore.checker.once import line
from metastore.checker.operation import READS, Told
from metastore.checker.records import Lost
from metastore.checker.tree import Placed

__all__ = ["Justice"]

_NOBODY: Final = frozenset({"lost", "unavailable"})
"""Causes that are the connection's or the server's."""
_EXCLUSIVE: Final = frozenset({"ancestor", "marked", "busy"})


class Justice:
    """Remembers who was under way, and whether there were exclusive operations."""

    def __init__(self) -> None:
        self._writing: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._exclusive = 0
        self.others = False
        """Somebody wrote whose calls are not known: whoever lost may have lost to him."""

    def wrote(self, event: Placed) -> None:
        self._exclusive += event.exclusive

    def begins(self, told: Told) -> None:
        if told.action in READS:
            return
        self._writing[told.client] = told.number
        if told.action == "freeze":
            self._exclusive += 1

    def ends(self, told: Told, newer: Callable[[int, int], bool]) -> Iterator[Finding]:
        """Yield each conflict that nobody caused. ``newer(id, version)``: whether there is a later one."""
        if told.action in READS or told.end is None:
            return
        if self._writing.get(told.client) == told.number:
            del self._writing[told.client]
        for lost in told.conflicts:
            if not self._just(told, lost, newer):
                where = "" if lost.entity_id is None else f" on entity {lost.entity_id}"
                expected = "" if lost.expected is None else f", which it expected at version {lost.expected}"
                message = f"an attempt lost ({lost.cause}){where}{expected}, and nobody had won"
                yield Finding("conflict", message, (line(told),))
        self._ended[told.client] = max(told.end, self._ended.get(told.client, 0))

    def _just(self, told: Told, lost: Lost, newer: Callable[[int, int], bool]) -> bool:
        if lost.cause in _NOBODY:
            return True
        if lost.cause == "self" and lost.entity_id is not None and lost.expected is not None:
            mine = {(event.entity_id, event.version) for event in told.events}
            own = (lost.entity_id, lost.expected + 1) in mine and told.helped is False
            return newer(lost.entity_id, lost.expected) and not own
        if lost.cause == "name" and any(seen.there for seen in told.reads):
            return True
        if self.others or (lost.cause in _EXCLUSIVE and self._exclusive):
            return True
        return any(client != told.client for client in self._writing) or any(
            end >= told.start for client, end in self._ended.items() if client != told.client
        )
