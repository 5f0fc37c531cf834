"""The record of one operation, as its client saw it. The checker and the load test's analysis read these records.

A *record folder* holds what one run left behind:

* ``log/``: a file of JSON lines for each client, written while it runs (:mod:`metastore.checker.recorder`);
* ``operations/``: the same as Parquet, a row for each operation (the columns are :data:`OPERATIONS`);
* ``feed/``: the change feed, a row for each event (:data:`EVENTS`);
* ``tables/``: the entities that are live at the end (:data:`ENTITIES`).

An operation is identified by its ``client`` and its ``number``. All its writes carry the principal
``<client>/<number>``, so the feed names the client of each event, even if the client was killed before the answer.

Outcomes:

* ``applied``: it returned, and wrote;
* ``nothing``: it returned, and there was nothing to write;
* ``read``: it returned data, and was not a write;
* ``failed``: it could not succeed, because the name is taken, or the entity is missing;
* ``conflicted``: it gave up, and was not applied;
* ``unknown``: the acknowledgement was lost;
* ``open``: it never returned, because its client was killed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

__all__ = ["ENTITIES", "EVENTS", "OPERATIONS", "OUTCOMES", "Lost", "Operation", "Outcome", "Seen"]

Outcome = Literal["applied", "nothing", "read", "failed", "conflicted", "unknown", "open"]
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)


class Seen(NamedTuple):
    """One read of an operation: the entity, and whether it existed."""

    path: str | None
    """The path of the read; None: it was a read by id."""
    there: bool
    entity_id: int | None = None
    version: int | None = None
    """None, with an id: the entity existed at an unknown version."""
    kind: str | None = None
    """None: the kind of the operation."""
    of: Literal["children", "dropped"] | None = None
    """None: the read was of the entity itself. ``children``: whether the entity has live children, as a caught NotEmpty
    shows. ``dropped``: whether an entity that was dropped under the path can be restored.
    """


class Lost(NamedTuple):
    """One attempt that lost."""

    cause: str
    """See ``metastore.port.commit.Cause``; also "lost" (an answer) and "unavailable" (the database)."""
    entity_id: int | None = None
    expected: int | None = None
    """The version of the entity that it expected."""


@dataclass(slots=True)
class Operation:
    """One operation, as its client saw it."""

    client: str
    number: int
    action: str
    """load, exists, list, create, alter, rename, move, drop (without cascade), drop_cascade, restore (by path, of the
    entity that was dropped there last), transaction, freeze, …
    """
    kind: str | None
    path: str | None
    path_to: str | None
    """The new path of a rename or a move."""
    clock: str
    """The name of the clock of ``start`` and ``end``. Only times of one clock can be compared."""
    start: int
    """The time before the call, in nanoseconds on that clock."""
    at: float
    """The same time in seconds since 1970, for people."""
    end: int | None = None
    """The time of the return, on the same clock; None: it never returned."""
    operation_id: str | None = None
    attempts: int = 0
    conflicts: list[Lost] = field(default_factory=list)
    outcome: Outcome = "open"
    error: str | None = None
    """The name of the error's class."""
    entity_id: int | None = None
    version_before: int | None = None
    version_after: int | None = None
    helped: bool | None = None
    """Whether another operation's commit applied it."""
    held_from: int | None = None
    """For a freeze: the time when its block began, on the clock of ``start``."""
    held_to: int | None = None
    """For a freeze: the time when its block ended, before the commit."""
    reads: list[Seen] = field(default_factory=list)
    """The reads. Each was true at one instant between start and end. If the operation wrote, each was true at its
    commit. The reads of a transaction or a freeze, and those behind an error, were all true at one instant.
    """
    values: dict[str, float] = field(default_factory=dict)
    """Other numbers that a scenario records."""

    @property
    def principal(self) -> str:
        """The principal of the operation's writes."""
        return f"{self.client}/{self.number}"


OPERATIONS: Final = (
    "client string not null, number long not null, action string not null, kind string, path string, path_to string, "
    "clock string not null, start long not null, at double not null, end long, operation_id string, "
    "attempts int not null, conflicts array<struct<cause: string, entity_id: long, expected: long>> not null, "
    "outcome string not null, error string, entity_id long, version_before long, version_after long, helped boolean, "
    "held_from long, held_to long, "
    "reads array<struct<path: string, there: boolean, entity_id: long, version: long, kind: string, of: string>> "
    "not null, "
    "values map<string, double> not null, position long"
)
"""A Spark schema. ``position`` is the position of the operation's last event in the feed; null: it wrote nothing."""

EVENTS: Final = (
    "seq long not null, operation_id string not null, principal string, kind string not null, action string not null, "
    "entity_id long not null, owner_id long, version long not null, path_before string, path_after string, "
    "time long not null, wrong string"
)
"""``seq`` is the position as a number, ``time`` microseconds since 1970; ``owner_id`` is the owner of an owned row.
``wrong`` says how the document differs from the result of the changes on the previous one; null: it does not.
"""

ENTITIES: Final = "entity_id long not null, kind string not null, path string not null, version long not null"
