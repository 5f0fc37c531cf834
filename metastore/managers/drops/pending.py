"""A drop in steps, as the object that one process works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from metastore.errors import DropPending, EntityNotFound
from metastore.kinds.drop import DESTROYED, DROP, STARTED, Drop, target_id
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.kinds.registry import kind_named
from metastore.managers.drops import steps
from metastore.managers.drops.announce import Begin, announce
from metastore.managers.drops.row import pending_within, read_same
from metastore.managers.mutation import actor_of, mutate
from metastore.managers.purge import delete_trees, left_to_gc
from metastore.managers.target import Target
from metastore.names import parse_path
from metastore.operation.perform import perform
from metastore.operation.request import Attempt, Call, Fencing, Request
from metastore.operation.session import ManagerSession, Session
from metastore.plain import plain
from metastore.port.conditions import ROOT_ID
from metastore.port.records import OwnedRecord, Step

T = TypeVar("T")


def begin_drop(session: ManagerSession, kind: Kind, target: Target, begin: Begin, call: Call) -> PendingDrop:
    """Announce a drop in steps; return it, held. Raises InvalidArgument in a transaction."""
    store = session.of_store()
    begin = replace(begin, operation=call.operation_id or begin.operation, actor=actor_of(session, call))
    row = mutate(
        session,
        kind,
        call,
        "begin_drop",
        target,
        lambda view: announce(view, kind, target, begin),
        _announced,
        lambda: [begin.ttl, begin.column and list(parse_path(begin.column)), begin.partition],
        exclusive=begin.column is None and begin.partition is None,
        owned_rows=True,
        id=begin.operation,
    )
    return PendingDrop(store, Drop(row), held=True)


def _announced(written: Sequence[Step]) -> OwnedRecord:
    row = next(step for step in written if step.kind == DROP.name)
    entity_id, name, doc = row.entity_id or 0, row.name or "", row.doc or ""
    return OwnedRecord(entity_id, ROOT_ID, DROP.name, name, 1, doc, row.principal, row.time, row.principal, row.time)


class PendingDrop:
    """A drop in steps of an entity, a column or a partition. One thread at a time uses it.

    ``begin_drop`` returns it *held*: no other process can take it over until its ttl has passed since the last step.
    Then any process may. The drops of ``store.drops.pending()`` are not held; their first step takes them over.
    """

    def __init__(self, session: Session, drop: Drop, *, held: bool) -> None:
        self._session, self._drop, self._held = session, drop, held
        self._lost = False
        """Another process has taken the drop over, or the drop has ended: a step was refused."""
        self._finish_from = 0.0
        """The time of ``monotonic`` at which the previous holder has surely stopped."""

    # --- its description

    @property
    def operation(self) -> UUID:
        """The id of the operation that announced the drop; DropPending names it."""
        return UUID(self._drop.operation)

    @property
    def kind(self) -> str:
        """The kind of the entity."""
        return self._drop.target_kind

    @property
    def entity_id(self) -> int:
        """The id of the entity. Find the data by this id: the path may lead to another entity by now."""
        return target_id(self._drop.name)

    @property
    def path(self) -> str:
        """The path of the target when the drop was announced; the name of a column or partition comes last."""
        return self._drop.target_path

    @property
    def column(self) -> str | None:
        """The name of the column, if one is dropped."""
        return self._drop.part_name if self._drop.part == "column" else None

    @property
    def partition(self) -> str | None:
        """The name of the partition, if one is dropped."""
        return self._drop.part_name if self._drop.part == "partition" else None

    @property
    def phase(self) -> str:
        """``announced``, ``started``, or ``destroyed``, as this process saw it last."""
        return self._drop.phase

    @property
    def token(self) -> int:
        """The fencing token, which grows with each take-over."""
        return self._drop.token

    @property
    def handler(self) -> str | None:
        """The handler that the announcing process had registered for the kind; None: none was registered."""
        return self._drop.handler

    @property
    def held(self) -> bool:
        """Whether this process holds the drop, as far as it knows: no step has been refused."""
        return self._held and not self._lost

    @property
    def expires_at(self) -> datetime:
        """The time from which others may take the drop over (UTC, the database's clock)."""
        return self._drop.modified_at + timedelta(seconds=self._drop.ttl)

    @property
    def holder(self) -> str | None:
        """The principal of the last step."""
        return self._drop.modified_by

    def entity(self) -> Entity:
        """Return the entity as it is now, although it is not live, with its columns, location and properties.

        Raises EntityNotFound if the drop has ended and gc has deleted the entity, or if its commit was lost.
        """
        backend, drop = self._session.backend, self._drop
        (known,) = backend.by_id([self.entity_id])
        if known is None:
            raise EntityNotFound(self.path, f"{self.path} was purged: its drop has ended; there is nothing left to do")
        # another, later entity has the id; the second test excludes a mere difference between two servers' clocks
        if known.record.created_at > drop.record.created_at and read_same(backend, drop) is None:
            raise EntityNotFound(self.path, f"{self.path} is not there any more: its drop was lost; destroy nothing")
        return kind_named(self.kind).entity(known.record, backend.origin)

    def to_dict(self) -> dict[str, Any]:
        """Return the drop as plain JSON values, as ``metastore drops --json`` prints it."""
        names = ("operation", "kind", "path", "entity_id", "column", "partition", "phase", "token", "holder", "handler")
        return {name: plain(getattr(self, name)) for name in (*names, "expires_at")}

    def __repr__(self) -> str:
        return f"<PendingDrop {self.path!r}, {self.phase}, token {self.token}>"

    # --- its steps: with a ``lease``, each raises LeaseLost and changes nothing if the holder has lost it; history and
    # feed show ``reason``

    def started(self, *, lease: Fencing | None = None, reason: str | None = None) -> None:
        """Note that destruction begins; call it before you destroy anything.

        Call it again to keep the drop for another ttl.

        Raises DropPending if another process has taken it over, EntityNotFound if it was finished or rolled back.
        """
        call = Call(lease=lease, reason=reason)
        self._take(call)
        self._step("start", lambda view: steps.start(view, self._drop), self._seen, call)

    def finish(self, *, lease: Fencing | None = None, reason: str | None = None) -> bool:
        """Remove the target for good: no restore or revert brings it back. Return False if the drop had been finished.

        If this process took the drop over after destruction had started, wait until the previous holder's ttl has
        passed again. Raises DropPending if another process has taken it over, EntityNotFound if it was rolled back.
        """
        call = Call(lease=lease, reason=reason)
        self._take(call)
        clock = self._session.clock
        if (left := self._finish_from - clock.monotonic()) > 0:
            clock.sleep(left)
        done = self._step("finish", lambda view: steps.finish(view, self._drop), lambda _: True, call)
        if not done and steps.is_back(self._session.backend, self._drop):
            raise steps.lost(self.path)
        if done and self._drop.part is None:
            with left_to_gc():
                self._delete()
        return done

    def roll_back(self, *, lease: Fencing | None = None, reason: str | None = None) -> None:
        """Bring the target back, as it was.

        Raises DropPending once destruction has begun, or if the drop was taken over.

        Raises EntityNotFound if the drop has ended, or if an entity above the target is not live.
        """
        call = Call(lease=lease, reason=reason)
        self._take(call, to_roll_back=True)
        self._step("roll back", lambda view: steps.roll_back(view, self._drop), lambda _: True, call)

    def take_over(self, *, lease: Fencing | None = None) -> None:
        """Take the drop over from a process whose ttl has passed. Do nothing if this process holds the drop already.

        Raises DropPending before the ttl has passed, EntityNotFound if the drop has ended.
        """
        self._take(Call(lease=lease))

    def _take(self, call: Call, *, to_roll_back: bool = False) -> None:
        if self._held:
            return
        before = self._drop
        if before.phase != DESTROYED:
            now = self._session.backend.now()
            take = partial(steps.take_over, known=before, now=now, to_roll_back=to_roll_back)
            self._step("take over", take, self._seen, call)
        self._held, self._lost = True, False
        if self._drop.phase == STARTED:
            # the previous holder may still destroy data, so the name stays taken until it has surely stopped
            self._finish_from = self._session.clock.monotonic() + before.ttl

    def _step(self, verb: str, attempt: Attempt[T], replay: Callable[[Any], T], call: Call) -> T:
        request = Request[T](
            verb=verb,
            what=lambda: f"{verb} the drop of {self.path}",
            attempt=attempt,
            replay=replay,
            arguments=lambda: [verb, self._drop.name, self.token],
            exclusive=verb in ("finish", "roll back") and self._drop.part is None,
        )
        try:
            result = perform(self._session, request, call)
        except (DropPending, EntityNotFound):
            row = read_same(self._session.backend, self._drop)
            self._lost = row is None or row.token != self.token
            raise
        if isinstance(result, OwnedRecord):
            self._drop = Drop(result._replace(modified_by=self._session.principal))
        return result

    def _seen(self, written: list[Step]) -> OwnedRecord:
        """Return the row that a step wrote whose answer was lost, if no other process has taken the drop over since."""
        drop = Drop(self._drop.record._replace(doc=written[0].doc or "", modified_at=written[0].time))
        return steps.still_mine(self._session.backend, drop).record

    def _delete(self) -> None:
        """Delete the rows of the entity and of all below it, as a purge does; leave them to gc if a drop is below."""
        backend = self._session.backend
        if not pending_within(backend, kind_named(self.kind), self.entity_id):
            delete_trees(backend, [self.entity_id])
