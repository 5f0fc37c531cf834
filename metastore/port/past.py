"""The port for the past: rows as they were at a position, pins that keep the past, consumers of the feed.

A read of the past sees the tables as a replay of the feed up to the position makes them. A commit of several rows is
visible from its last position on. Each read checks in its snapshot whether gc has kept the steps that it needs: gc
first raises ``past_from``, and then deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from metastore.port.records import Child, Known, Lookup, OwnedRecord, Resolved, Step


class NotKept(Exception):
    """gc has not kept the past at a position, and no pin keeps it. ``since``: the first position of a complete past."""

    def __init__(self, since: int) -> None:
        super().__init__(since)
        self.since = since


class PinRow(NamedTuple):
    """A named position. gc keeps the past at this position until the pin is removed or expires."""

    name: str
    seq: int
    principal: str | None
    created_at: int
    expires_at: int | None
    operation_id: UUID | None = None
    """The operation at the position, if history still has it; None for a new pin."""


class PastRow(NamedTuple):
    """An entity, owned row or relation as it was at a position, without its ancestors."""

    id: int
    owner_id: int | None
    """The owner of an owned row or relation; ``parent_id`` is then the same."""
    parent_id: int
    kind: str
    name: str
    state: int
    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int
    other_id: int | None
    """For a relation: the end that it leads to."""


class ConsumerRow(NamedTuple):
    """A named reader of the feed."""

    name: str
    seq: int
    """The position up to which it has read the feed."""
    created_at: int
    moved_at: int
    operation_id: UUID | None = None
    """The operation of the change at the position; None: no such operation."""


class Way(NamedTuple):
    """The nodes that lead to an entity."""

    ids: tuple[int, ...]
    """Their ids, from the metalake down to the entity itself."""
    live: bool
    """Whether all of them were live."""


class PastRows(Protocol):
    """Reads at the position ``at``. Each raises NotKept if gc has removed steps that it needs."""

    def resolve(self, at: int, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path over the nodes that were live then, as far as it leads."""

    def by_id(self, at: int, ids: Sequence[int], *, docs: bool = True) -> list[Known | None]:
        """Return each entity as it was then, in any state; None: it did not exist then, or it is purged."""

    def ways(self, at: int, ids: Sequence[int]) -> dict[int, Way]:
        """Return the nodes that led to each entity then, in any state; skip those for which ``by_id`` is None."""

    def children(
        self, at: int, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int
    ) -> list[Child]:
        """Return at most ``limit`` children that were in this state after (key, id), ordered by key and id."""

    def owned(self, at: int, owner_id: int, kind: str, after: str, limit: int) -> list[OwnedRecord]:
        """Return at most ``limit`` owned rows after the name ``after``, ordered by name."""

    def owned_by_name(
        self, at: int, owner_ids: Sequence[int], kind: str, names: Sequence[str]
    ) -> list[OwnedRecord | None]:
        """Return the owned row of each owner and name; None: there was none."""

    def related(self, at: int, from_ids: Sequence[int], kind: str) -> list[OwnedRecord]:
        """Return the relations of a kind that went from these entities, as rows of these entities, in no order."""

    def led(self, at: int, to_id: int, kind: str) -> list[OwnedRecord]:
        """Return the relations of a kind that led to an entity, each as a row of its other end, in no order."""

    def rows(self, at: int, low: int, high: int, kinds: Sequence[str] | None = None) -> list[PastRow]:
        """Return the entities, owned rows and relations with ``low`` <= id < ``high``, ordered by id.

        ``kinds``: only rows of these kinds.
        """

    def last_id(self) -> int:
        """Return an id that no entity or owned row exceeds."""

    def history(self, at: int, entity_id: int, after: int, limit: int) -> list[Step]:
        """Return the steps of an entity or owned row, up to the position, whose version is greater than ``after``."""

    def check(self, at: int) -> None:
        """Raise NotKept if the past at a position is incomplete."""

    def since(self) -> int:
        """Return the first position from which the past is complete."""

    def times(self, after: int, limit: int) -> list[tuple[int, int]]:
        """Return (position, time in µs) of the next steps after a position."""

    def later(self, after: int) -> tuple[int, int | None]:
        """Return the number of steps after a position, and the time of the first one (µs); None: there is none."""

    def newest(self, until: int) -> Step | None:
        """Return the newest step up to a position."""


class Readers(Protocol):
    """Pins and consumers, for which gc must keep steps."""

    def pin(self, name: str, seq: int, principal: str | None, seconds: float | None) -> PinRow | None:
        """Insert a pin, which expires after ``seconds`` (None: never). Return None if the name is taken.

        It waits for a gc that is about to raise ``past_from``. Raises NotKept if the past at the position is
        incomplete.
        """

    def pins(self) -> list[PinRow]:
        """Return all pins that have not expired, ordered by name."""

    def extend(self, name: str, seconds: float) -> bool:
        """Let a pin expire ``seconds`` from now; return False if the pin is gone already."""

    def unpin(self, name: str) -> bool:
        """Remove a pin; return False if it does not exist."""

    def consumer(self, name: str) -> ConsumerRow | None:
        """Return a consumer; None: there is none."""

    def consumers(self) -> list[ConsumerRow]:
        """Return all consumers, ordered by name."""

    def add_consumer(self, name: str, seq: int) -> ConsumerRow:
        """Insert a consumer at a position; return it, or the one that has the name already."""

    def drop_consumer(self, name: str) -> bool:
        """Remove a consumer; return False if it does not exist."""
