"""Check that reads of the past find each row. The visible steps must have the row's place, and one must take its name.

A read of the past looks for the step that took a name, and then for the place of that row (``backends/sql/past.py``). A
step without a place, or with a place whose name no step took, is left out of the past without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from metastore.port.conditions import LIVE

__all__ = ["Placed", "Standing", "seen_at"]


class Standing(Protocol):
    """A step's record of the place of its row afterwards."""

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
    """Follows the steps of one row, by version. A step is checked if the past shows it at ``past_from`` or later."""

    def __init__(self, past_from: int) -> None:
        self._past_from = past_from
        self._taken: tuple[int | None, str | None] | None = None
        self._last: Standing | None = None
        self._named = True

    def follow(self, step: Standing) -> Iterator[str]:
        """Take the next step, and yield the problems of the previous one.

        The past shows the previous step until this step.
        """
        if seen_at(step) > self._past_from:
            yield from self._problems()
        if step.key is not None:
            self._taken = step.parent_id, step.name
        self._last, self._named = step, self._taken == (step.parent_id, step.name)

    def end(self, *, there: bool) -> Iterator[str]:
        """Yield the problems of the last step; ``there``: its row still exists, so the past shows the step."""
        if there or (self._last is not None and seen_at(self._last) > self._past_from):
            yield from self._problems()

    def _problems(self) -> Iterator[str]:
        step = self._last
        if step is None:
            return
        if step.parent_id is None or step.name is None or step.state is None:
            yield f"version {step.version} does not have its place: reads of the past leave it out"
        elif step.state == LIVE and not self._named:
            self._taken = step.parent_id, step.name  # noted, so that this is reported only once
            yield f"no step that is kept took the name of version {step.version}: reads of the past leave it out"


def seen_at(step: Standing) -> int:
    """Return the position from which the past shows a step: the steps of a transaction appear together."""
    return step.through or step.seq or 0
