"""The operations of a backend for requests that travel together: one statement for many, and an answer for each.

The members of a batch are independent operations. Each has its own preconditions, and is applied, or not, by itself:
what one of them finds hurts no other. A batch means what its members mean one after the other, in the order given.
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

__all__ = [
    "TAKEN",
    "AlterStep",
    "AlterTogether",
    "Altered",
    "Batch",
    "Batches",
    "Below",
    "Single",
    "Taken",
    "Written",
]


class Below(NamedTuple):
    """A live child to look for: its parent's nodes as they were seen last, its family, and its key."""

    parents: tuple[Node, ...]
    """From below the root; (): the root is the child's parent."""
    family: str
    key: str

    @property
    def asked(self) -> Hashable:
        """The value that tells it from others in a batch.

        (A hash of the nodes takes longer than all else that a read needs.)
        """
        return id(self.parents), self.family, self.key


class AlterStep(NamedTuple):
    """One operation among those that alter one entity: it makes one version, unless it is an intent without effect."""

    operation_id: UUID
    principal: str | None
    doc: str | None
    changes: str | None
    carried: Resolution | None = None
    """The result of an intent that the batch resolves as well, before its own steps; it must still be pending."""

    @property
    def action(self) -> str:
        """The action in the operation's row."""
        return "alter" if self.carried is None else self.carried.action


class AlterTogether(NamedTuple):
    """Operations that alter one entity, in this order, from its ``version`` on: all of them, or none."""

    guards: tuple[Guard, ...]
    id: int
    version: int
    scope_version: int
    """The entity's own scope version: while it is the same, the entity is where it was seen."""
    kind: str
    path: str
    steps: tuple[AlterStep, ...]
    helps: bool = False
    """The version was read with the intents that were pending then, and the steps carry all of them."""
    ticket: int | None = None
    """The number of the ticket on which they go: only older ones hinder them. One that is gone: each one does."""
    leaves: bool = False
    """The ticket is removed with them."""

    @property
    def last_version(self) -> int:
        """The version that the last step leaves behind."""
        return self.version + sum(step.action == "alter" for step in self.steps)


class Altered(NamedTuple):
    """What became of an :class:`AlterTogether`."""

    time: int | None
    """When it was applied (µs since 1970); None: a precondition did not hold."""
    version: int | None = None
    """If nothing but the entity's version was another one: its newest version."""
    doc: str | None = None
    """The document of that version; None: it does not fit into the answer."""
    modified_by: str | None = None
    modified_at: int = 0
    pending: bool = False
    """Intents that this program understands must be resolved first, and nothing else speaks against it."""
    queued: bool = False
    """A transaction is in line for the entity."""


class Single(NamedTuple):
    """One operation with one write: a new entity, or an exclusive update that keeps the document."""

    guards: tuple[Guard, ...]
    write: Insert | Update
    operation_id: UUID
    principal: str | None
    follows: UUID | None = None
    """The alter of the same batch that makes the version which it expects. Another commit's version of that number has
    another document."""


class Batch(NamedTuple):
    """Writes of many requests. They mean what they mean one after the other: creates, alters, exclusive updates."""

    inserts: Sequence[Single] = ()
    """No two take one name."""
    alters: Sequence[AlterTogether] = ()
    """Each entity occurs once."""
    updates: Sequence[Single] = ()
    """Each entity occurs once. One that is altered too expects the version that the last alter leaves."""
    run: str | None = None
    """See :class:`~metastore.port.commit.Commit`."""

    @property
    def operations(self) -> list[UUID]:
        """The operation ids of all of them."""
        steps = [step.operation_id for one in self.alters for step in one.steps]
        return [one.operation_id for one in (*self.inserts, *self.updates)] + steps


Taken = Literal["taken"]
TAKEN: Final = "taken"
"""The outcome of a create or a rename to the name of a live entity, if everything else held."""


class Written(NamedTuple):
    """What became of a :class:`Batch`: an answer for each member, in its order."""

    inserts: list[Result | Taken | None]
    """None: it was not made, because a guard does not hold, or the name was not free for another reason."""
    alters: list[Altered]
    updates: list[Result | Taken | None]
    """None: it was not applied, because a precondition does not hold, its name is taken, or its row was locked."""


@runtime_checkable
class Batches(Protocol):
    """A backend for which one message for many requests is cheaper than a message for each."""

    def find_below(self, wanted: Sequence[Below]) -> list[Record | bool]:
        """Return each child, as it is at one instant, the same for all.

        False: no such child exists, and no entity of that name is being dropped. True: more must be asked, because the
        parents are not where they were seen, or one of that name is being dropped.
        """

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted | Unknown:
        """Apply each of these by itself, in one transaction. One attempt.

        ``patience``: how long to wait for others' locks, in milliseconds, before it gives up with "busy" and applies
        nothing; 0: skip locked rows. Conflicted: it applied nothing.
        """
