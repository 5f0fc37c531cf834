"""The operations of a backend for gc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from metastore.port.relations import Sweep


class HistoryLimits(NamedTuple):
    """What gc may delete of the history."""

    before: int
    """Steps that are older than this (µs since 1970)."""
    horizon: int
    """The last position whose past is not needed; no step after it is older than ``before``."""
    keep: int
    """gc keeps the newest ``keep`` versions of each entity that still exists."""
    unread: int
    """gc keeps the steps after this position: a consumer of the feed has not read them."""


class Gone(NamedTuple):
    """An entity that is not live, and its place in the index of such entities."""

    parent_id: int
    family: str
    key: str
    id: int


BEFORE_ALL = Gone(-1, "", "", -1)


class Upkeep(Protocol):
    """The work of gc, in bounded batches. Any number of processes may do it at once."""

    def dropped_before(self, time: int, after: Gone, limit: int) -> list[Gone]:
        """Return the next entities that were dropped before ``time`` (µs since 1970), and are not purging yet."""

    def purging(self, after: Gone, limit: int) -> list[Gone]:
        """Return the next entities that wait for their deletion."""

    def below(self, entity_ids: Sequence[int], limit: int) -> list[int]:
        """Return children of these entities in any state."""

    def delete_relations(self, ids: Sequence[int], limit: int) -> int:
        """Delete at most ``limit`` relations of each of these entities, which are purging; return how many."""

    def sweep_relations(self, after: int, limit: int) -> Sweep:
        """Look at ``limit`` relations after an id; delete the ones that have a purged end."""

    def delete_columns(self, relation_ids: Sequence[int]) -> None:
        """Delete relations of columns that were dropped."""

    def delete_entities(self, ids: Sequence[int]) -> int:
        """Delete entities, with their owned rows, to which no path leads any more, unless they have children.

        Their relations must be gone: see ``delete_relations``.
        """

    def forget(self, before: int) -> None:
        """Refuse operation ids that are older than ``before`` (µs since 1970) from now on, so that gc may delete them.

        If an earlier call set a limit that is ahead of the clock, the clock was set back since. Then lower the limit to
        the clock: otherwise no id would be accepted until the clock reaches the limit.
        """

    def forget_tickets(self) -> None:
        """Remove tickets whose owners have died, and which no waiter has removed."""

    def forget_pins(self) -> None:
        """Remove the pins that have expired."""

    def delete_steps(self, limits: HistoryLimits, after: int, limit: int) -> tuple[int | None, int, int]:
        """Look at ``limit`` steps after a position; delete those within the limits that nothing needs.

        A step is deleted if the step that replaced it is within the limits too, and no pin lies between the two. So the
        past from the horizon on, and at each pin, stays complete. Before it deletes a step, it raises the first
        position with a complete past to the position of the step's successor. Return the last position that it looked
        at (None: no step was left), and the numbers of versions and of other steps that it deleted.
        """
