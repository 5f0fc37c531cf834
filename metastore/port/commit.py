"""A commit is a value: preconditions, writes and their events, applied all or not at all.

This is the *minitransaction* of Sinfonia (SOSP 2007), or ``Txn(compare, then)`` in etcd.
A backend applies a commit in one attempt and answers with an outcome:

* :class:`Committed`: everything was applied, atomically; the results follow the writes' order;
* :class:`Conflicted`: nothing was applied, because a precondition did not hold; it says which;
* :class:`Unknown`: the acknowledgement was lost; only the operation id can tell.

A commit is always one logical operation, whose operation id is written with it. ``conditions.py`` has the
preconditions, ``writes.py`` the writes. ``intents.py`` has the operations that are written down before they are applied
(:class:`~metastore.port.intents.Entry`), and the commit that applies the intents of other operations
(:class:`~metastore.port.intents.Help`).
"""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

from metastore.port.conditions import Caller, Guard, LeaseToken, Read
from metastore.port.intents import Help
from metastore.port.value import value
from metastore.port.writes import Advance, Result, Update, Write

MOVED: Final = '{"value": null}'
"""The result of a commit that only moves a consumer: None, as :mod:`metastore.operation.kept_result` writes it."""


@value
class Commit:
    """One operation, ready to be applied in one attempt."""

    operation_id: UUID
    principal: str | None
    guards: tuple[Guard, ...] = ()
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    skip_existing: bool = False
    """Inserts whose name is taken are left out, instead of failing the commit."""
    claim: int = 0
    """The number under which the operation's row was claimed: this commit replaces that row.

    0: the operation has no row yet.
    """
    caller: Caller | None = None
    held: int | None = None
    """The guard that carries this operation's mark. The mark must still be there; the commit removes it."""
    ticket: int | None = None
    """The number of the operation's own ticket: only older tickets hinder it.

    Without a ticket (None), or if it is gone, every ticket does.
    """
    leaves: tuple[int, ...] = ()
    """The commit removes the ticket from these entities."""
    carries: tuple[Help, ...] = ()
    """Intents that are resolved on top of the commit's own writes, in the order given.

    Each expects the version that the commit makes, and ignores the other pending intents of its entity.
    """
    overlook: bool = False
    """Pending intents do not hinder it: this program does not understand them, or the scope is frozen and they wait."""
    leases: tuple[LeaseToken, ...] = ()
    """The leases under which the commit is made: they must still have these tokens."""
    publishes: tuple[UUID, ...] = ()
    """Values that were staged under the leases, and that this commit publishes.

    No commit may have published one before.
    """
    patience: int | None = None
    """How long to wait for others' locks (milliseconds) before the commit conflicts ("busy"); None: until the deadline.
    """
    advance: Advance | None = None
    """The position of a consumer, which this commit moves.

    If it writes nothing else, it leaves a row ("unchanged", :data:`MOVED`) of its operation, to settle a lost answer.
    """
    evidence: tuple[tuple[int, int], ...] = ()
    """The guards (id, scope version) on which a user's right to this operation rests.

    The operation's first row notes them.
    """
    run: str | None = None
    """The run of the server (:class:`~metastore.port.records.Origin`) before the operation's first read:
    another run applies nothing. None: the run at the moment when the commit is sent.
    """
    reason: str | None = None
    """The reason for the operation, in its caller's words. Each of its rows keeps the reason."""

    @property
    def leaves_row(self) -> bool:
        """Whether it leaves a row of its operation, so that a lost answer can be settled."""
        return bool(self.writes) or self.advance is not None

    @property
    def by_name(self) -> bool:
        """Whether it names the entity that it updates, instead of giving its id."""
        return any(isinstance(write, Update) and write.named is not None for write in self.writes)


Cause = Literal[
    "ancestor",
    "self",
    "name",
    "not_empty",
    "read",
    "serialization",
    "operation",
    "pending",
    "marked",
    "busy",
    "stale_id",
    "claim",
    "lease",
    "ticket",
]


@value
class Committed:
    """Applied. One result for each write in order; None for an insert that was skipped."""

    results: tuple[Result | None, ...]


@value
class Conflicted:
    """Nothing was applied.

    ``cause`` says which precondition failed; ``found`` is the entity's present version, if it is known.

    * ``ancestor``: a guard; ``self``: the version of a written row; ``read``: a validated read;
    * ``name``: it is taken; ``not_empty``: it has children;
    * ``operation``: the operation id exists already; ``stale_id``: the caller's id is too old, or from the future;
    * ``claim``: another message has claimed the operation's row; ``lease``: a lease has another token by now;
    * ``pending``: there are intents that the commit does not resolve;
    * ``ticket``: another transaction is in line for an entity that is written;
    * ``marked``: another operation is announced on a scope, or has just had its turn;
    * ``busy``: a lock could not be acquired within the patience; ``serialization``: the database found a deadlock.
    """

    cause: Cause
    id: int | None = None
    found: int | None = None


@value
class Unknown:
    """The answer was lost; ``reason`` says how, without secrets."""

    reason: str


CommitOutcome = Committed | Conflicted | Unknown
