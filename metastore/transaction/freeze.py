"""Freeze a schema: for a while no other operation writes it, without a lock or a database transaction.

``with store.schemas.exclusive(path) as tx:`` bumps the schema's scope version and marks it, in one update. This waits
for the writers in flight below the schema, and keeps later ones out: they retry until their deadline and then get
ScopeFrozen. The writes of the block are one commit, which requires the mark and removes it. A holder that dies blocks
writers for at most its ttl. After each freeze, the others have their turn as long as the freeze took, at least 50 ms
and at most 5 s.

Writers of the schema's ancestors are not kept out: if one commits, the holder's commit fails, and names the ancestor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from metastore.arguments import positive_seconds
from metastore.deadlines import GRACE, cleaning, until
from metastore.errors import BackendUnavailable, DeadlineExceeded, InvalidArgument, MetastoreError
from metastore.governance.access import Want
from metastore.managers.builtin import Schemas
from metastore.managers.target import Target, find, names_of
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.marks import MARK_TTL
from metastore.operation.request import Call, Fencing, View, the_result
from metastore.operation.session import Session
from metastore.port.commit import CommitOutcome, Committed, Conflicted, Unknown
from metastore.port.conditions import Guard
from metastore.port.intents import Mark
from metastore.port.records import Node, Record
from metastore.port.scopes import Scopes
from metastore.retry.runner import Conflict, run
from metastore.transaction.transaction import Transaction, effort_of

_MOST_OF_A_USER: Final = 60.0
"""How long a user's freeze may keep others out (seconds)."""


class FreezableSchemas(Schemas):
    """The manager of a store's schemas; it can also freeze a schema."""

    _session: Session

    def exclusive(
        self,
        path: Target,
        *,
        ttl: float = 30.0,
        timeout: float = 30.0,
        principal: str | None = None,
        lease: Fencing | None = None,
        reason: str | None = None,
    ) -> Freeze:
        """Freeze a schema: ``with store.schemas.exclusive("lake.c.s") as tx: …`` is one commit.

        Meanwhile no other operation writes the schema or anything below it. ``ttl``: how long the freeze lasts at most;
        ``timeout``: how long to wait for it (both in seconds). A user's ``ttl`` is at most 60, because nobody can break
        a freeze.

        At the beginning it raises EntityNotFound, NotInUse, or ScopeFrozen if another operation kept the schema until
        the timeout (call again). At the end it raises LeaseLost if the ``lease`` is lost, or VersionConflict if the ttl
        has passed, or an ancestor was renamed, moved, dropped or disabled (run the block again). After an error at the
        end, nothing of the block is written.
        """
        ttl = positive_seconds(ttl, "a ttl")
        if self._session.access is not None and ttl > _MOST_OF_A_USER:
            raise InvalidArgument(f"a user's freeze lasts at most {_MOST_OF_A_USER:.0f} s, not {ttl:g}")
        names_of(self._kind, path)
        call = Call(principal, positive_seconds(timeout, "a timeout"), lease=lease, reason=reason)
        return Freeze(self._session, call, lambda view: find(view, self._kind, path), f"the freeze of {path!r}", ttl)


class Freeze(Transaction):
    """A transaction that has one scope for itself. Raises ScopeFrozen or EntityNotFound when it begins."""

    def __init__(self, session: Session, call: Call, find: Callable[[View], Record], what: str, ttl: float) -> None:
        super().__init__(session, call)
        self._find = find
        self._what = what
        self._ttl = ttl
        self._above: tuple[Guard, ...] = ()
        self._overlook = True

    def __enter__(self) -> Self:
        self._check_new()
        session = self._outer
        policy = session.policy_of(self._call)
        ends = session.ends_of(self._call)
        try:
            with until(ends):
                scope_version = run(lambda _: self._freeze(), effort_of(session, policy, self._id, ends, self._what))
            return self._begun_under(scope_version)
        except BaseException as error:
            self._release(GRACE)
            if isinstance(error, DeadlineExceeded):
                raise self._mark.blame(error) from error.__cause__
            raise

    def _begun_under(self, scope_version: int) -> Self:
        assert self._mark.held is not None
        access = self._outer.access
        if access is not None:
            access.noted = Scopes()  # forget the rights read before the freeze raised the scope version
        self._overlay.require(self._mark.held, scope_version)
        for guard in self._above:  # the commit validates these guards even if the block reads nothing
            self._overlay.require(guard.id, guard.scope_version)
        return super().__enter__()

    def _freeze(self) -> int:
        """Mark the scope and bump its scope version; return the new one."""
        record = self._find(View(self._outer.backend, trusting=False))
        parents, own = record.chain[:-1], record.chain[-1]
        check_in_use(parents)
        if self._outer.access is not None:
            self._outer.access.require(record.chain, Want(own.id, "own"))
        if self._mark.held not in (None, own.id):
            self._release(GRACE)  # the mark is on the entity to which the path led before
        self._scope = record.path
        try:
            outcome = self._take(parents, own)
        except BackendUnavailable as error:
            if not error.transient:
                raise
            raise Conflict("unavailable", str(error)) from None
        if isinstance(outcome, Committed):
            return the_result(outcome.results).version
        if isinstance(outcome, Unknown):
            raise Conflict("lost", "the answer was lost", 0.0)
        raise self._mark.step_aside([n.id for n in record.chain], cause=outcome.cause)

    def _take(self, parents: tuple[Node, ...], own: Node) -> CommitOutcome:
        backend = self._outer.backend
        # the first mark does not wait for writers in flight; after it, new writers cannot keep the second mark waiting
        lost, self._mark.held = self._mark.held, own.id  # set first: the request may make a mark
        outcome = backend.mark(Mark(self._id, own.id, min(self._ttl, MARK_TTL)))
        if not isinstance(outcome, Committed):
            if isinstance(outcome, Conflicted):
                # refused, so there is no mark to remove, except an earlier one that may land late
                self._mark.held = lost
            return outcome
        self._above = guards_of(parents)
        return backend.mark(Mark(self._id, own.id, self._ttl, own.scope_version, self._above))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            # after an error of the block, the removal may take a whole deadline; otherwise only GRACE
            failed = kind is not None and issubclass(kind, Exception)
            self._release(self._outer.policy_of(self._call).deadline if failed else GRACE)

    def _release(self, seconds: float) -> None:
        """Remove the mark within this many seconds, if no commit removed it."""
        if self._is_inherited:
            return
        with cleaning(self._outer.clock.monotonic() + seconds), suppress(MetastoreError):  # the ttl ends it
            self._mark.remove()
