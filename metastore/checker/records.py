"""What a client saw of one operation: a row of the records that the checker and the load test's analysis read.

A *record folder* holds what one run left behind:

* ``log/``: a file of JSON lines for each client, written while it runs (:mod:`metastore.checker.recorder`);
* ``operations/``: the same as Parquet, a row for each operation (the columns are :data:`OPERATIONS`);
* ``feed/``: the change feed, a row for each event (:data:`EVENTS`);
* ``tables/``: what is live at the end (:data:`ENTITIES`).

An operation is known by its ``client`` and its ``number``. Whatever it writes carries the principal
``<client>/<number>``, so that the feed tells whose each event is, even if the client was killed before it was told.

Outcomes: ``applied`` (it returned, and wrote), ``nothing`` (it returned, and there was nothing to write), ``read``,
``failed`` (on its own merits: the name is taken, it is not there), ``conflicted`` (it gave up, and was not applied),
``unknown`` (the acknowledgement was lost for good) and ``open`` (it never returned: its client was killed).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

__all__ = ["ENTITIES", "EVENTS", "OPERATIONS", "OUTCOMES", "Lost", "Operation", "Outcome", "Seen"]

Outcome = Literal["applied", "nothing", "read", "failed", "conflicted", "unknown", "open"]
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)


class Seen(NamedTuple):
    """One thing that an operation read, and whether it was there."""

    path: str | None
    """Where it was looked for; None: by its id."""
    there: bool
    entity_id: int | None = None
    version: int | None = None
    """None, with an id: it was there, at whatever version."""
    kind: str | None = None
    """None: the operation's own."""


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
    """load, exists, list, create, alter, rename, move, drop (of what must be empty), drop_cascade, restore,
    transaction, freeze, …"""
    kind: str | None
    path: str | None
    path_to: str | None
    """Of a rename or a move."""
    clock: str
    """Whose clock ``start`` and ``end`` are of: only the times of one clock can be compared."""
    start: int
    """Nanoseconds on that clock, from before the call."""
    at: float
    """The same in seconds since 1970, for people."""
    end: int | None = None
    """None: it never returned."""
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
    reads: list[Seen] = field(default_factory=list)
    """What it vouches for: each was so at one instant between start and end. What one who wrote had read was so when
    he committed; what a transaction or a freeze read was so all at once."""
    values: dict[str, float] = field(default_factory=dict)
    """What a scenario wants to be known beside it."""

    @property
    def principal(self) -> str:
        """Under whose name it writes."""
        return f"{self.client}/{self.number}"


OPERATIONS: Final = (
    "client string not null, number long not null, action string not null, kind string, path string, path_to string, "
    "clock string not null, start long not null, at double not null, end long, operation_id string, "
    "attempts int not null, conflicts array<struct<cause: string, entity_id: long, expected: long>> not null, "
    "outcome string not null, error string, entity_id long, version_before long, version_after long, helped boolean, "
    "reads array<struct<path: string, there: boolean, entity_id: long, version: long, kind: string>> not null, "
    "values map<string, double> not null, position long"
)
"""As a Spark schema. ``position`` is that of its (last) event in the feed, as a number; null: it wrote nothing."""

EVENTS: Final = (
    "seq long not null, operation_id string not null, principal string, kind string not null, action string not null, "
    "entity_id long not null, owner_id long, version long not null, path_before string, path_after string, "
    "time long not null"
)
"""``seq`` is the position as a number, ``time`` microseconds since 1970; ``owner_id``: whose owned row it is."""

ENTITIES: Final = "entity_id long not null, kind string not null, path string not null, version long not null"
