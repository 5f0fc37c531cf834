"""The commits since a position, with only the columns that a cache needs to find outdated entries."""

from __future__ import annotations

from typing import NamedTuple


class Touch(NamedTuple):
    """One committed step: its position, the entity, relation or owned row, the action, and the present place."""

    seq: int
    entity_id: int | None
    action: str
    path_after: str | None


class Touched(NamedTuple):
    """All committed steps after a position, and those in the given gaps, at one instant."""

    epoch: str
    collected: int
    """gc removed nothing after this position."""
    oldest: int
    """All transactions with a lower number are over at this instant."""
    rows: list[Touch]
    """The steps in no order; more than ``limit`` if there are more than ``limit`` after the position."""
