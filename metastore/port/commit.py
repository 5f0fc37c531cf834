"""A commit is a value: preconditions, writes and their events, applied all or not at all.

This is the *minitransaction* of Sinfonia (SOSP 2007), or ``Txn(compare, then)`` in etcd.
A backend applies a commit in one attempt and answers with an outcome:

* :class:`Committed`: everything was applied, atomically; the results follow the writes' order;
* :class:`Conflicted`: nothing was applied, because a precondition did not hold; it says which;
* :class:`Unknown`: the acknowledgement was lost; only the operation id can tell.

A commit is always one logical operation, whose operation id is written with it. ``conditions.py`` has the
preconditions, ``writes.py`` the writes. ``intents.py`` has what is written down before it is applied: an
:class:`~metastore.port.intents.Entry`; a commit that applies the intents of other operations is a
:class:`~metastore.port.intents.Help`.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from metastore.port.conditions import Caller, Guard, LeaseToken, Read
from metastore.port.intents import Help
from metastore.port.value import value
from metastore.port.writes import Advance, Result, Update, Write

__all__ = ["Cause", "Commit", "CommitOutcome", "Committed", "Conflicted", "Unknown"]


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
    """The number under which the operation's row was claimed, which this commit replaces; 0: it has none yet."""
    caller: Caller | None = None
    held: int | None = None
    """The guard that carries this operation's mark. It must still do so; the commit takes it away."""
    ticket: int | None = None
    """The number of the operation's own ticket: only older ones hinder it. None, or one that is gone: each one does."""
    leaves: tuple[int, ...] = ()
    """The commit removes the ticket from these entities."""
    carries: tuple[Help, ...] = ()
    """Intents that are resolved on top of the commit's own writes, in the order given. Each expects the version that
    the commit leaves behind, and overlooks what else is pending on its entity."""
    overlook: bool = False
    """Pending intents do not hinder it: they are not understood, or the scope is frozen and they wait."""
    leases: tuple[LeaseToken, ...] = ()
    """The leases under which it is done: their tokens must still be these."""
    publishes: tuple[UUID, ...] = ()
    """Values that were staged under the leases, and become visible by this commit. None may be published yet."""
    patience: int | None = None
    """How long to wait for others' locks (milliseconds) before it is a conflict ("busy"); None: until the deadline."""
    advance: Advance | None = None
    """The position of a consumer that moves with it."""
    evidence: tuple[tuple[int, int], ...] = ()
    """The guards (id, scope version) on which a user's right to do it rests. The operation's first row notes them."""
    run: str | None = None
    """The run of the server (:class:`~metastore.port.records.Origin`) before the operation's first read:
    another run applies nothing. None: the run at the moment when the commit is sent."""
    reason: str | None = None
    """Why it is done, in its caller's words. Each of its rows keeps it."""

    @property
    def by_name(self) -> bool:
        """Whether it names what it updates, instead of its id."""
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
    """Nothing was applied. ``cause`` says which precondition failed; ``found`` is the version found, if it is known.

    * ``ancestor``: a guard; ``self``: the version of what is written; ``read``: a validated read;
    * ``name``: it is taken; ``not_empty``: it has children;
    * ``operation``: the operation id is known already; ``stale_id``: the caller's is too old, or from the future;
    * ``claim``: another message has claimed the operation's row; ``lease``: a lease has another token by now;
    * ``pending``: there are intents that the commit does not resolve;
    * ``ticket``: another transaction is in line for what is written;
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
