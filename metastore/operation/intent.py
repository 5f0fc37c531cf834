"""Announce an operation as an intent, and help: whichever process comes first applies the intent.

After the announcement each attempt *helps*: it applies all pending intents on the entity, including its own, or finds
that another process did. docs/progress.md has the bound and its proof.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NoReturn

from metastore.errors import DeadlineExceeded, InvalidArgument
from metastore.kinds.change import EntityChange, encode
from metastore.kinds.kind import MAX_CHANGES
from metastore.kinds.registry import kind_named
from metastore.names import format_path
from metastore.operation.helping import BATCH, BatchSize, PlannedHelp, leads_to, plan
from metastore.operation.kept_result import with_origin
from metastore.operation.marks import OwnMark
from metastore.operation.record import OperationRow, detail
from metastore.operation.request import Merge, Results
from metastore.operation.session import Session
from metastore.operation.tickets import Watch, give_way, scopes_of
from metastore.port.commit import Committed, Conflicted, Unknown
from metastore.port.intents import CLAIMABLE, PENDING, WITH_EVIDENCE, Entry
from metastore.port.records import Pending, Record, Step
from metastore.port.tickets import Line
from metastore.retry.reactions import REACTIONS, Reaction
from metastore.retry.runner import Conflict

_CLOSE = 0.1
"""If an intent expires this shortly before its call's deadline, it expired because of that deadline (seconds)."""


def hot_now(session: Session, merge: Merge | None) -> int | None:
    """Return the entity on which to announce a change before any attempt, because another one lost there just now."""
    if merge is None:
        return None
    hot = session.hot.find(merge.entity_id, merge.names and (merge.kind, merge.names))
    return hot if hot is not None and _can_be_written(merge.changes) else None


class Intent:
    """One operation as an intent: announced, then applied together with the other pending intents of its entity."""

    def __init__(self, session: Session, row: OperationRow, mark: OwnMark, what: Callable[[], str]) -> None:
        self._session = session
        self._row = row
        self._mark = mark
        self._what = what
        self.merge: Merge | None = None
        """The changes to announce; None: the operation cannot be announced."""
        self._others = 0  # how many intents were pending on the entity before this one
        self._batch = BatchSize()

    def hot(self, merge: Merge, lost_on: int | None = None) -> int | None:
        """Return the entity on which to announce ``merge`` at once, because a change of this entity lost a moment ago.

        ``lost_on``: the entity on which this change itself lost in batches.
        """
        if self._row.claim or self._row.pending_on is not None:
            return None
        if lost_on is not None:
            return lost_on if _can_be_written(merge.changes) else None
        return hot_now(self._session, merge)

    def announce(self, entity_id: int) -> None:
        """Write the operation down as an intent. Every process that writes the entity next applies it."""
        merge, row, session = self.merge, self._row, self._session
        assert merge is not None
        entry = Entry(
            row.id,
            "pending",
            row.principal,
            entity_id=entity_id,
            kind=merge.kind,
            path=None if merge.names is None else format_path(merge.names),
            changes=json.dumps(encode(merge.changes)),
            format=max(kind_named(merge.kind).format_of(merge.changes), WITH_EVIDENCE if merge.evidence else 0),
            seconds=max(0.0, row.ends - session.clock.monotonic()),
            claim=row.claim,
            caller=row.caller,
            evidence=merge.evidence,
            settled=merge.settled,
            reason=row.reason,
        )
        self._others = row.write_down(entry)
        session.metrics.announced()
        session.metrics.overtaken(self._others)
        session.hot.note(entity_id, merge.names and (merge.kind, merge.names))

    def help(self, entity_id: int) -> Record | Step:
        """Apply all pending intents with one compare-and-swap, including this one; or find this operation decided.

        Return the entity after this operation's change, or the operation's row if it has another outcome. Raises
        Conflict.
        """
        session = self._session
        if (self._others or session.hot.has_line(entity_id)) and not session.hot.leads(entity_id):
            done = self._wait_for_others(entity_id)
            if done is not None:
                return self._decided(done)
        while True:
            ended = session.backend.in_one_go(lambda: self.attempt(entity_id))
            if ended is not None:
                return ended
            done = self._wait_in_line(entity_id)
            if done is not None:
                return self._decided(done)

    def attempt(self, entity_id: int) -> Record | Step | None:
        """Make one attempt of :meth:`help` on one snapshot, without waiting; None if transactions are in line."""
        session = self._session
        began = session.clock.monotonic()
        seen = session.backend.pending(entity_id, self._row.id, BATCH)
        if seen.own is None or seen.own.action != PENDING:
            if seen.known is not None and seen.known.live:
                session.recent.note(seen.known.record.chain)
            return self._decided(seen.own)
        return None if seen.queued else self._apply(self._plan(seen, seen.own), seen.own, began)

    def _plan(self, seen: Pending, own: Step) -> PlannedHelp:
        """Return the planned help. Raises Conflict if the intent's path leads to another entity now."""
        known = seen.known
        if known is None or not known.live or not leads_to(own.path_before, known.record.chain):
            self._withdraw()
        planned = plan(seen, self._row.id, self._batch, scopes_of(self._session.backend, seen))
        if planned is None:
            raise Conflict("pending", "a newer program wrote this operation down; only a newer one can apply it")
        self._session.metrics.pending(len(seen.intents), (seen.now - seen.intents[0].time) / 1e6)
        return planned

    def _apply(self, planned: PlannedHelp, own: Step, began: float) -> Record | Step:
        session = self._session
        try:
            outcome = session.backend.help(planned.help)
        except InvalidArgument:
            self._batch.refused(planned.help)
            raise self._conflict(planned, "rejected", "the database refuses a change in the batch", 0.0) from None
        if isinstance(outcome, Committed):
            session.hot.took(session.clock.monotonic() - began)
            return self._helped(planned, outcome.results, own)
        session.hot.follow()
        if isinstance(outcome, Unknown):
            raise self._conflict(planned, "lost", "the answer was lost")
        return self._lost(planned, outcome)

    def _wait_for_others(self, entity_id: int) -> Step | None:
        """Wait until the oldest intent's owner has applied this one too; return the operation's row if that happened.

        This saves work; the proof does not need it. The owner of the oldest intent does not wait. A process that has
        waited for some rounds in vain helps by itself.
        """
        self._others, clock, hot = 0, self._session.clock, self._session.hot
        began = clock.monotonic()
        for wait in hot.waits():
            clock.sleep(min(wait, max(0.0, self._row.ends - clock.monotonic())))
            own, ahead, line = self._session.backend.turn(entity_id, self._row.id)
            if own is not None:
                hot.took(clock.monotonic() - began)
                return own
            if line.head is not None:
                return self._wait_in_line(entity_id, line)
            if ahead == 0:
                break
        return None

    def _wait_in_line(self, entity_id: int, line: Line | None = None) -> Step | None:
        """Wait for the transactions in line; the next one's commit applies the intent. Return the row then.

        No attempt is lost meanwhile. Return None if the line is empty. ``line``: the line as the last look showed it.
        """
        give_way(self._session.backend, [entity_id])
        watch = Watch(self._session, [entity_id])
        self._session.hot.saw_line(entity_id)
        while True:
            if line is None:
                own, _, line = self._session.backend.turn(entity_id, self._row.id)
                if own is not None or line.head is None:
                    return own
            watch.wait(line._replace(ahead=min(line.ahead, 2)), self._row.ends, self._row.id)
            line = None

    def _lost(self, planned: PlannedHelp, outcome: Conflicted) -> NoReturn:
        if REACTIONS[outcome.cause].helper is Reaction.STEP_ASIDE:
            raise self._mark.step_aside([n.id for n in planned.record.chain] + [g.id for g in planned.help.guards])
        if outcome.found is not None:
            self._session.metrics.overtaken(outcome.found - planned.help.version)
        raise self._conflict(planned, outcome.cause, detail(outcome), 0.0)

    def _helped(self, planned: PlannedHelp, results: Results, own: Step) -> Record | Step:
        """Return the commit's result for this operation's intent.

        Raise Conflict if the intent was left out, or not applied.
        """
        record, resolutions = planned.record, planned.help.resolutions
        self._note_batch(record, len(resolutions))
        for one, result in zip(resolutions, results, strict=True):
            if one.operation_id != self._row.id:
                continue
            assert result is not None
            if one.action in CLAIMABLE:
                self._row.look = True  # the intent was not applied: it has expired, or its entity has moved
                break
            self._row.pending_on = None
            if one.action == "alter":
                return record._replace(modified_at=result.time)
            return own._replace(action=one.action, result=one.result, time=result.time)
        raise self._conflict(planned, "pending", "others came first", 0.0)

    def _note_batch(self, record: Record, size: int) -> None:
        hot, entity_id = self._session.hot, record.chain[-1].id
        if size == 1:
            hot.cool(entity_id)
        else:
            hot.note(entity_id)
            hot.lead(entity_id)
        self._session.metrics.batch(size)
        self._session.recent.note(record.chain)
        self._batch.passed()

    def _decided(self, own: Step | None) -> Step:
        """Return the operation's row, which another process decided; or claim the operation again."""
        if own is None or own.action in ("moved", "cancelled", "forbidden"):
            self._row.claim_again()
        if own.action == "expired":
            if self._session.clock.monotonic() < self._row.ends - _CLOSE:
                self._row.claim_again()  # the intent expired at the deadline of another call with this id
            self._row.pending_on = None
            raise DeadlineExceeded(f"{self._what()} was not applied within its deadline; call again")
        return with_origin([own], self._session.backend)[0]

    def _withdraw(self) -> NoReturn:
        """Withdraw the intent, because its path no longer leads to this entity. The call resolves the path again."""
        if self.merge is not None and self.merge.names is not None:
            self._session.hot.leave((self.merge.kind, self.merge.names))
        if self._session.backend.cancel(self._row.id):
            self._row.claim_again()
        self._row.look = True
        raise Conflict("ancestor", "the entity was renamed, moved or dropped", 0.0)

    def _conflict(self, planned: PlannedHelp, cause: str, text: str, wait: float | None = None) -> Conflict:
        return Conflict(cause, text, wait, planned.help.id, planned.help.version)


def help_others(session: Session, entity_id: int) -> bool:
    """Apply the pending intents of an entity, for a commit that cannot carry them.

    Return False if this program cannot resolve the remaining intents; then the commit ignores them.
    """
    batch = BatchSize()
    while True:
        seen = session.backend.pending(entity_id, None, BATCH)
        if not seen.intents or seen.known is None or not seen.known.live:
            return True
        planned = plan(seen, None, batch, scopes_of(session.backend, seen))
        if planned is None:
            return False
        try:
            outcome = session.backend.help(planned.help)
        except InvalidArgument:  # the database refuses one result; the next batches find which one
            batch.refused(planned.help)
            continue
        if isinstance(outcome, Committed):
            session.metrics.batch(len(planned.help.resolutions))
        return True


def _can_be_written(changes: Sequence[EntityChange]) -> bool:
    """Whether the changes are valid JSON and short enough; other changes are refused when they are applied."""
    try:
        return len(json.dumps(encode(tuple(changes)))) <= MAX_CHANGES
    except (TypeError, ValueError, RecursionError):
        return False
