"""Check that the past finds each row: the steps that it shows say where the row was, and a step took the name.

A read of the past asks which step took a name, and then where that row was (``backends/sql/past.py``). A step without
a place, or a place whose name no step took, is left out of the past without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from metastore.port.conditions import LIVE

__all__ = ["Placed", "Standing", "seen_at"]


class Standing(Protocol):
    """A step's record of where its row was afterwards."""

    @property
    def version(self) -> int | None: ...
    @property
    def seq(self) -> int | None: ...
    @property
    def through(self) -> int | None: ...
    @property
    def parent_id(self) -> int | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def state(self) -> int | None: ...
    @property
    def key(self) -> str | None: ...


class Placed:
    """Follows the steps of one row, by version. A step counts if the past shows it at ``past_from`` or later."""

    def __init__(self, past_from: int) -> None:
        self._past_from = past_from
        self._taken: tuple[int | None, str | None] | None = None
        self._last: Standing | None = None
        self._named = True

    def follow(self, step: Standing) -> Iterator[str]:
        """Take the next step, and yield what is wrong with the one before, which the past shows up to here."""
        if seen_at(step) > self._past_from:
            yield from self._problems()
        if step.key is not None:
            self._taken = step.parent_id, step.name
        self._last, self._named = step, self._taken == (step.parent_id, step.name)

    def end(self, *, there: bool) -> Iterator[str]:
        """Yield what is wrong with the last step; ``there``: its row exists, so that the past shows the step."""
        if there or (self._last is not None and seen_at(self._last) > self._past_from):
            yield from self._problems()

    def _problems(self) -> Iterator[str]:
        step = self._last
        if step is None:
            return
        if step.parent_id is None or step.name is None or step.state is None:
            yield f"version {step.version} does not say where it stood: reads of the past leave it out"
        elif step.state == LIVE and not self._named:
            self._taken = step.parent_id, step.name  # told once
            yield f"no step that is kept took the name of version {step.version}: reads of the past leave it out"


def seen_at(step: Standing) -> int:
    """Return the position from which on the past shows a step: a transaction's steps show together."""
    return step.through or step.seq or 0
