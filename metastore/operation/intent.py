"""An operation that is written down as an intent: announced, and then helped, by whoever comes first.

From the announcement on each attempt *helps*: it applies all that is pending on the entity, its own
among it, or finds that somebody else did. docs/progress.md has the bound and its proof.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NoReturn, TypeVar, cast
from uuid import UUID

from metastore.errors import DeadlineExceeded, InvalidArgument
from metastore.kinds.change import EntityChange, encode
from metastore.kinds.kind import MAX_CHANGES
from metastore.kinds.registry import kind_named
from metastore.names import format_path
from metastore.operation.helping import BATCH, Batch, Plan, leads_to, plan
from metastore.operation.marks import in_the_way
from metastore.operation.outcome import entity_at, replay
from metastore.operation.record import OperationRow, detail
from metastore.operation.request import Call, Request, Results
from metastore.operation.session import Session
from metastore.port.commit import CLAIMABLE, PENDING, Committed, Entry, Resolution, Unknown
from metastore.port.records import Pending, Record, Step
from metastore.retry.runner import Conflict

__all__ = ["Announced"]

T = TypeVar("T")

_CLOSE = 0.1
"""So shortly before a call's deadline an intent that expired expired because of it (seconds)."""


class Announced(OperationRow[T]):
    """An operation, as far as it is an intent."""

    def __init__(self, session: Session, request: Request[T], call: Call) -> None:
        super().__init__(session, request, call)
        self._others = 0  # how many intents were there before
        self._batch = Batch()
        self._lost_to: int | None = None  # the entity of the last conflict
        self._expected: int | None = None  # the version of it that was expected
        self._held: int | None = None  # the guard that carries our mark, or may
        self._in_the_way: UUID | None = None  # whose mark we stepped aside for

    def _step_aside(self, ids: Sequence[int]) -> NoReturn:
        """Another operation is announced on a scope: let it pass, without a mark of one's own meanwhile."""
        found = in_the_way(self._backend, ids, self.id)
        for entity_id in {*found.mine, *([self._held] if self._held is not None else [])}:
            if found.other is not None or self._held not in found.mine:
                self._backend.unmark(entity_id, self.id)  # also one that landed late
                self._held = None
        self._in_the_way, self._lost_to = found.other or self._in_the_way, None
        if found.other is None and found.quiet and self._request.exclusive:
            raise Conflict("marked", "others have their turn after an exclusive operation", found.quiet)
        raise Conflict("marked", f"operation {found.other} has the scope for itself")

    def _check_mark(self, held: int) -> None:
        """The commit requires our mark: if that is gone, do without."""
        if not in_the_way(self._backend, [held], self.id).mine:
            self._held = None
            raise Conflict("marked", "the mark was taken away, or had not been set", 0.0)

    def _unmark(self) -> None:
        if self._held is not None:
            self._backend.unmark(self._held, self.id)
            self._held = None

    def _hot(self) -> int | None:
        merge = self._announceable(self._request.merge)
        if merge is None or self._claim or self._announced is not None:
            return None
        hot = self._session.hot.find(merge.entity_id, merge.names and (merge.kind, merge.names))
        return hot if hot is not None and _can_be_written(merge.changes) else None

    def _announce(self, entity_id: int) -> None:
        """Write the operation down as an intent, which whoever writes the entity next applies."""
        merge = self._merge
        assert merge is not None
        changes = json.dumps(encode(merge.changes))
        entry = Entry(
            self.id,
            "pending",
            self._principal,
            entity_id=entity_id,
            kind=merge.kind,
            path=None if merge.names is None else format_path(merge.names),
            changes=changes,
            format=kind_named(merge.kind).format_of(merge.changes),
            seconds=max(0.0, self._ends - self._session.clock.monotonic()),
            claim=self._claim,
            caller=self._caller,
        )
        self._others = self._written_down(self._backend.write_down(entry))
        self._announced = entity_id
        self._session.metrics.announced()
        self._session.metrics.overtaken(self._others)
        self._session.hot.note(entity_id, merge.names and (merge.kind, merge.names))

    def _help(self, entity_id: int) -> T:
        """Apply what is pending, one's own among it, with one compare-and-swap; or find it done."""
        if self._others and not self._session.hot.leads(entity_id):
            done = self._wait_for_others(entity_id)
            if done is not None:
                return self._known([done])
        began = self._session.clock.monotonic()
        seen = self._backend.pending(entity_id, self.id, BATCH)
        if seen.own is None or seen.own.action != PENDING:
            return self._resolved(seen.own, seen)
        planned = self._plan(seen, seen.own)
        self._lost_to, self._expected = entity_id, planned.help.version
        try:
            outcome = self._backend.help(planned.help)
        except InvalidArgument:
            self._batch.refused(planned.help)
            raise Conflict("rejected", "the database refuses what somebody wants to write", 0.0) from None
        if isinstance(outcome, Committed):
            self._session.hot.took(self._session.clock.monotonic() - began)
            return self._helped(planned.help.resolutions, outcome.results, seen, planned.record)
        self._session.hot.follow()
        if isinstance(outcome, Unknown):
            raise Conflict("lost", "the answer was lost")
        if outcome.cause == "marked":
            self._step_aside([n.id for n in planned.record.chain])
        if outcome.found is not None:
            self._session.metrics.overtaken(outcome.found - planned.help.version)
        raise Conflict(outcome.cause, detail(outcome), 0.0)

    def _plan(self, seen: Pending, own: Step) -> Plan:
        """Return what to commit; or find that the intent means something else now."""
        known = seen.known
        if known is None or not known.live or not leads_to(own.path_before, known.record.chain):
            self._withdraw()
        planned = plan(seen, self.id, self._batch)
        if planned is None:
            raise Conflict("pending", "a newer program wrote this operation down; only such a one can apply it")
        self._session.metrics.pending(len(seen.intents), (seen.now - seen.intents[0].time) / 1e6)
        return planned

    def _wait_for_others(self, entity_id: int) -> Step | None:
        """Let the oldest intent's owner apply this one too; return its row if he did.

        That saves work, and is no part of the proof: the oldest does not wait, and whoever has
        waited for some rounds in vain helps himself.
        """
        self._others, clock, hot = 0, self._session.clock, self._session.hot
        began = clock.monotonic()
        for wait in hot.waits():
            clock.sleep(min(wait, max(0.0, self._ends - clock.monotonic())))
            own, ahead = self._backend.turn(entity_id, self.id)
            if own is not None:
                hot.took(clock.monotonic() - began)
                return own
            if ahead == 0:
                break
        return None

    def _helped(self, resolutions: Sequence[Resolution], results: Results, seen: Pending, record: Record) -> T:
        hot, entity_id = self._session.hot, record.chain[-1].id
        if len(resolutions) == 1:
            hot.cool(entity_id)
        else:
            hot.note(entity_id)
            hot.lead(entity_id)
        self._session.metrics.batch(len(resolutions))
        self._session.recent.note(record.chain)
        self._batch.passed()
        for one, result in zip(resolutions, results, strict=True):
            if one.operation_id != self.id:
                continue
            assert result is not None
            if one.action not in CLAIMABLE:
                self._announced = None
            if one.action == "alter":
                record = record._replace(modified_at=result.time)
                return cast(T, kind_named(record.chain[-1].kind).entity(record))
            if one.action in CLAIMABLE:
                self._look = True  # it is expired, or means something else now
                break
            steps = [cast(Step, seen.own)._replace(action=one.action, result=one.result)]
            return replay(steps, self._request.replay)
        raise Conflict("pending", "others came first", 0.0)

    def _resolved(self, own: Step | None, seen: Pending) -> T:
        """The intent is decided by somebody else."""
        if own is None or own.action in ("moved", "cancelled", "forbidden"):
            self._claim_again()
        if own.action == "expired":
            if self._session.clock.monotonic() < self._ends - _CLOSE:
                self._claim_again()  # it was another call's deadline
            self._announced = None
            raise DeadlineExceeded(f"{self._request.what()} was not applied within its deadline; call again")
        self._decided_by, self._announced = "other", None
        self._session.hot.note(cast(int, own.entity_id))
        if own.seq is not None and seen.known is not None:
            return cast(T, entity_at(own, seen.known.record.chain))
        return replay([own], self._request.replay)

    def _withdraw(self) -> NoReturn:
        """What the intent names is not there any more: find out anew what the call means."""
        if self._merge is not None and self._merge.names is not None:
            self._session.hot.leave((self._merge.kind, self._merge.names))
        if self._backend.cancel(self.id):
            self._claim_again()
        self._look = True
        raise Conflict("ancestor", "the entity was renamed, moved or dropped", 0.0)


def _can_be_written(changes: Sequence[EntityChange]) -> bool:
    """Whether the changes are JSON, and not too long: others are refused when they are applied."""
    try:
        return len(json.dumps(encode(tuple(changes)))) <= MAX_CHANGES
    except (TypeError, ValueError, RecursionError):
        return False
