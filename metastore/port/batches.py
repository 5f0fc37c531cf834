"""The operations of a backend for a batch of requests: one statement for many requests, and an answer for each.

The members of a batch are independent operations. Each has its own preconditions, and is applied or not whatever
happens to the others. A batch has the same effect as its members one after the other, in the given order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import Guard
from metastore.port.intents import Resolution
from metastore.port.records import Node, Record
from metastore.port.writes import Insert, Result, Update


class Below(NamedTuple):
    """A live child to look for: its parent's nodes as last seen, its family, and its key."""

    parents: tuple[Node, ...]
    """The nodes from below the root to the parent; (): the parent is the root."""
    family: str
    key: str

    @property
    def asked(self) -> Hashable:
        """The value that distinguishes it from the others in a batch.

        (Hashing the nodes takes longer than the rest of a read.)
        """
        return id(self.parents), self.family, self.key


class AlterStep(NamedTuple):
    """An operation that alters an entity. It makes one version, unless it is an intent without effect."""

    operation_id: UUID
    principal: str | None
    doc: str | None
    changes: str | None
    carried: Resolution | None = None
    """The result of another's intent, resolved before the batch's own steps; the intent must still be pending."""

    @property
    def action(self) -> str:
        """The action in the operation's row."""
        return "alter" if self.carried is None else self.carried.action


class AlterTogether(NamedTuple):
    """Operations that alter one entity, in this order, beginning at its ``version``: all of them, or none."""

    guards: tuple[Guard, ...]
    id: int
    version: int
    scope_version: int
    """The entity's own scope version: while it stays the same, the entity has not moved."""
    kind: str
    path: str
    steps: tuple[AlterStep, ...]
    helps: bool = False
    """The steps resolve all intents that were pending when the version was read."""
    ticket: int | None = None
    """The number of their ticket: only older tickets block them. If the ticket is gone, every ticket does."""
    leaves: bool = False
    """The commit also removes the ticket."""

    @property
    def last_version(self) -> int:
        """The version that the last step leaves behind."""
        return self.version + sum(step.action == "alter" for step in self.steps)


class Altered(NamedTuple):
    """The outcome of an :class:`AlterTogether`."""

    time: int | None
    """The time at which it was applied (µs since 1970); None: a precondition did not hold."""
    version: int | None = None
    """The entity's newest version, if it was not the expected one and all else held."""
    doc: str | None = None
    """The document of that version; None: it is too large for the answer."""
    modified_by: str | None = None
    modified_at: int = 0
    pending: bool = False
    """The only obstacle: the commit must first resolve intents, which this program understands."""
    queued: bool = False
    """A transaction is in line for the entity."""


class Single(NamedTuple):
    """One operation with one write: a new entity, or an exclusive update that keeps the document."""

    guards: tuple[Guard, ...]
    write: Insert | Update
    operation_id: UUID
    principal: str | None
    follows: UUID | None = None
    """The alter of the same batch that makes the version which this operation expects.

    Another commit may have made that version; then the operation is not applied.
    """


class Batch(NamedTuple):
    """The writes of many requests.

    They have the same effect as one after the other: creates, alters, exclusive updates.
    """

    inserts: Sequence[Single] = ()
    """No two of them take the same name."""
    alters: Sequence[AlterTogether] = ()
    """Each entity occurs once."""
    updates: Sequence[Single] = ()
    """Each entity occurs once.

    If an entity is altered too, its update expects the version that the last alter makes.
    """
    run: str | None = None
    """See :class:`~metastore.port.commit.Commit`."""

    @property
    def operations(self) -> list[UUID]:
        """The operation ids of all writes."""
        steps = [step.operation_id for one in self.alters for step in one.steps]
        return [one.operation_id for one in (*self.inserts, *self.updates)] + steps


Taken = Literal["taken"]
TAKEN: Final = "taken"
"""The outcome of a create or rename if a live entity has the name, but all other preconditions held."""


class Written(NamedTuple):
    """The outcome of a :class:`Batch`: an answer for each member, in the order of the members."""

    inserts: list[Result | Taken | None]
    """None: the entity was not created, because a guard does not hold, or the name is taken in another way."""
    alters: list[Altered]
    updates: list[Result | Taken | None]
    """None: it was not applied, because a precondition failed, its name is taken, or its row was locked."""


@runtime_checkable
class Batches(Protocol):
    """A backend on which one message for many requests is cheaper than a message for each."""

    def find_below(self, wanted: Sequence[Below]) -> list[Record | bool]:
        """Return each child. All of them come from one instant.

        False: no such child exists, and no entity of that name is being dropped. True: another read must decide,
        because the parents have moved since they were seen, or an entity of that name is being dropped.
        """

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted | Unknown:
        """Apply the writes of a batch in one transaction, each independently of the others. Make one attempt.

        ``patience``: how long to wait for others' locks, in milliseconds, before the batch gives up with "busy" and
        applies nothing; 0: skip locked rows. Conflicted: nothing was applied.
        """
