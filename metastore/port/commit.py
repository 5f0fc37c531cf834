"""A commit is a value: preconditions, writes and their events, applied all or not at all.

This is the *minitransaction* of Sinfonia (SOSP 2007), or ``Txn(compare, then)`` in etcd.
A backend applies a commit in one attempt and answers with an outcome:

* :class:`Committed`: everything was applied, atomically; the results follow the writes' order;
* :class:`Conflicted`: nothing was applied, because a precondition did not hold; it says which;
* :class:`Unknown`: the acknowledgement was lost; only the row of the operation id can tell.

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
"""The result, None, of a commit that only moves a consumer, in the form of :mod:`metastore.operation.kept_result`."""


@value
class Commit:
    """One operation, ready to be applied in one attempt."""

    operation_id: UUID
    principal: str | None
    guards: tuple[Guard, ...] = ()
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    skip_existing: bool = False
    """Skip inserts whose name is taken, instead of failing the commit."""
    claim: int = 0
    """The number under which the operation's row was claimed; this commit replaces the row.

    0: the operation has no row yet.
    """
    caller: Caller | None = None
    held: int | None = None
    """The guard that carries this operation's mark. The mark must still be there; the commit removes it."""
    ticket: int | None = None
    """The number of the operation's own ticket: only older tickets block it.

    If it has none (None), or its ticket is gone, every ticket does.
    """
    leaves: tuple[int, ...] = ()
    """The entities from which the commit removes the ticket."""
    carries: tuple[Help, ...] = ()
    """Intents that are resolved after the commit's own writes, in the given order.

    Each expects the version that the commit makes, and ignores the other pending intents of its entity.
    """
    overlook: bool = False
    """Pending intents do not block it: this program does not understand them, or they wait for the frozen scope."""
    leases: tuple[LeaseToken, ...] = ()
    """The leases under which the commit is made; they must still have these tokens."""
    publishes: tuple[UUID, ...] = ()
    """Values that were staged under the leases; this commit publishes them.

    No earlier commit may have published one of them.
    """
    patience: int | None = None
    """How long to wait for others' locks (milliseconds) before the conflict "busy"; None: until the deadline."""
    advance: Advance | None = None
    """The consumer whose position this commit moves, and the position.

    If it writes nothing else, the operation leaves a row ("unchanged", :data:`MOVED`) that settles a lost answer.
    """
    evidence: tuple[tuple[int, int], ...] = ()
    """The guards (id, scope version) on which a user's right to this operation rests.

    The operation's first row notes them.
    """
    run: str | None = None
    """The server's run (:class:`~metastore.port.records.Origin`) before the operation's first read; another run applies
    nothing. None: the run at the moment when the commit is sent."""
    reason: str | None = None
    """The caller's reason for the operation. Each of its rows has it."""

    @property
    def leaves_row(self) -> bool:
        """Whether the operation leaves a row, which can settle a lost answer."""
        return bool(self.writes) or self.advance is not None

    @property
    def by_name(self) -> bool:
        """Whether it identifies the updated entity by its name instead of its id."""
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
    """Everything was applied. There is one result for each write in order; None for an insert that was skipped."""

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
    """The answer was lost; ``reason`` says why, without secrets."""

    reason: str


CommitOutcome = Committed | Conflicted | Unknown
