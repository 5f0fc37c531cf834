"""One logical operation over all its attempts: from a request to its result, exactly once.

An attempt begins on the *fast path*: read the entities that are not loaded, decide, compare and swap once. ``once.py``
makes the first attempt, and most calls need no more; after a conflict, this module continues. A change that loses is
*announced*: written down as an intent that every process may apply. After that each attempt *helps*: it applies all
pending intents on the entity, including its own, or finds that another process did. An exclusive operation that loses
*marks* its scope instead, so that others step aside. The table in :mod:`metastore.retry.reactions` maps each conflict
to a reaction.

An operation has parts with their own state. Its row (``record.py``) shows its state at any time. The other parts
are its leases (there too), its intent (``intent.py``), its mark (``marks.py``) and its place in line (``tickets.py``).
After a lost answer the operation reads its row. Before it sends again, it ensures that no message in flight can still
be applied. ``ending.py`` cleans up after a failed call. docs/progress.md has the protocol and its proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar, cast

from metastore.deadlines import GRACE, cleaning, until
from metastore.errors import BackendUnavailable, DeadlineExceeded, MetastoreError, OutcomeUnknown
from metastore.kinds.registry import kind_named
from metastore.metrics import Decided
from metastore.operation.begun import Begun
from metastore.operation.decide import commit_of, decide
from metastore.operation.dropping import pending_name
from metastore.operation.ending import clean_up, give_up
from metastore.operation.intent import Intent, help_others
from metastore.operation.kept_result import encode_error, encode_value, entity_at, merits, replay
from metastore.operation.marks import OwnMark, waits_at
from metastore.operation.record import OperationRow, OwnLeases, detail, tell_id, winner
from metastore.operation.request import Call, Merge, Proposal, Request, is_known
from metastore.operation.session import Session
from metastore.operation.tickets import Loan, OwnTicket, carrying, give_way, sent
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted, Unknown
from metastore.port.records import Record, Step
from metastore.port.writes import Update, Write
from metastore.retry.reactions import REACTIONS, Reaction
from metastore.retry.runner import Conflict, Effort, run

T = TypeVar("T")

_ROUNDS = 8
"""How often an attempt begins again when its intent was withdrawn, before it waits."""


class Operation(Generic[T]):
    """One logical operation; see the module. One thread uses it, once.

    ``begun``: its state after a first attempt or batches. ``lost`` is called after each lost attempt.
    """

    def __init__(
        self,
        session: Session,
        request: Request[T],
        call: Call,
        begun: Begun,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self._session = session
        self._backend = session.backend
        self._request = request
        self._call = call
        self._policy = session.policy_of(call)
        self._row = OperationRow(session, request, call, begun)
        self._begun, self._lost = begun, lost
        self._doubt, self._announce_on, self._met = begun.doubt, begun.announce_on, begun.met
        self._leases = OwnLeases(session, self._row, call)
        self._mark = OwnMark(session.backend, self._row.id, exclusive=request.exclusive)
        self._ticket = OwnTicket(session)
        self._loan = Loan(session)
        self._lent: int | None = None  # during an attempt: the ticket that a function around this call lends
        self._intent = Intent(session, self._row, self._mark, request.what)
        self._intent.merge = self._merge = self._announceable(request)
        self._attempts = 0
        self._decided_by: Decided = "self"
        self._lost_to: int | None = None  # the entity of the last conflict
        self._unavailable: BackendUnavailable | None = None  # the error of the last attempt
        self._exclusive = request.exclusive
        self._guessed = False  # True if the last commit rested on loaded or remembered entities
        self._overlook = False  # True if pending intents, which this program does not understand, must not block it
        self._again: Proposal[T] | None = None  # the proposal to send again after a lock conflict

    def _announceable(self, source: Request[T] | Proposal[T]) -> Merge | None:
        """Return the changes to announce. None under a lease: a helper that applied them would not hold the lease."""
        return source.merge if self._call.lease is None else None

    # --- the whole operation

    def run(self) -> T:
        """Return the operation's result, or raise its error."""
        session, row = self._session, self._row
        effort = Effort(
            self._policy,
            session.clock,
            session.bucket,
            self._request.what,
            row.id,
            winner=lambda: "" if self._lost_to is None else winner(session, self._lost_to, row.id),
            helped=lambda: self._decided_by == "other",
            lost=self._begun.lost,  # a lost batch counts as an attempt
            started=self._begun.started,
            ends=row.ends,
        )
        try:
            if self._doubt is not None:
                self._check_doubt(self._doubt)
            with until(row.ends):
                result = run(self._attempt, effort)
        except OutcomeUnknown:
            self._decided_by = "error"
            raise
        except Exception as error:  # noqa: BLE001  (it is raised again, unless the operation was applied)
            self._decided_by = "error"
            return give_up(session, row, self._mark, error, self._unavailable, self._ended)
        except BaseException as interrupt:
            self._decided_by = "error"
            clean_up(session, row, self._mark, self._policy.deadline)
            self._begun.sent = False  # this clean-up has settled the outcome: once.py must not do so again
            tell_id(interrupt, row.id)
            raise
        finally:
            seconds = session.clock.monotonic() - self._begun.started
            session.metrics.operation(self._request.verb, self._attempts, seconds, self._decided_by)
            if self._ticket.number is not None:
                with cleaning(session.clock.monotonic() + GRACE):
                    self._ticket.leave()
        if self._mark.held is not None:  # the mark is still set: the result came without a commit of this operation
            clean_up(session, row, self._mark, self._policy.deadline)
        return result

    def _check_doubt(self, doubt: Unknown) -> None:
        """If the call's time is over, find the outcome of a message in flight: no later attempt can do it.

        Raises DeadlineExceeded, OutcomeUnknown.
        """
        row, now = self._row, self._session.clock.monotonic()
        if now < row.ends:
            return
        row.ends = now + GRACE
        with cleaning(row.ends), suppress(Conflict):
            row.lost(doubt)
        raise DeadlineExceeded(
            f"{self._request.what()} was not applied: its deadline passed while its batch was under way; call again"
        )

    def _attempt(self, number: int) -> T:
        self._attempts, self._lost_to = number, None
        try:
            return self._try(number)
        except Conflict as conflict:
            if self._lost is not None:
                self._lost()
            self._unavailable = None
            if conflict.cause != "marked":  # blame a mark only if the last conflict was with a mark
                self._mark.other = None
            self._lost_to = conflict.entity_id
            self._session.metrics.conflict(
                self._request.verb, conflict.cause, conflict.entity_id, conflict.expected, self._row.principal
            )
            raise
        except BackendUnavailable as error:
            if not error.transient:
                raise
            if self._lost is not None:
                self._lost()
            self._session.metrics.conflict(self._request.verb, "unavailable", principal=self._row.principal)
            self._unavailable = error
            raise Conflict("unavailable", str(error)) from error

    def _try(self, number: int) -> T:
        """Make one attempt. A lost commit ends the attempt; a withdrawn intent does not."""
        row = self._row
        for _ in range(_ROUNDS):
            row.withdrawn, again = False, row.withdrawn
            try:
                return self._step(number, again)
            except Conflict:
                if not row.withdrawn:
                    raise
        raise Conflict("operation", "the intent was withdrawn again and again")

    def _step(self, number: int, withdrawn: bool) -> T:
        row = self._row
        if self._doubt is not None or self._met is not None:
            return self._take_up()
        if row.look:
            return self._ended(row.read())
        lost_on, self._announce_on = self._announce_on, None
        hot = None if self._merge is None else self._intent.hot(self._merge, lost_on)
        if hot is not None and not self._loan.may_add([hot], row.ends) and is_known(self._backend, self._request):
            self._announce_at_once(hot)
        if row.pending_on is not None:
            return self._help(row.pending_on)
        with self._loan.taken(row.ends) as self._lent:
            return self._backend.in_one_go(lambda: self._decide_and_commit(number == 1 and not withdrawn, withdrawn))()

    def _decide_and_commit(self, trusting: bool, withdrawn: bool) -> Callable[[], T]:
        """Decide, and commit the proposal. Return a function that does the rest, which may wait."""
        again, self._again = self._again, None
        if again is not None:
            return self._send(again, withdrawn)
        try:
            decided, self._guessed, self._run = decide(self._session, self._request, trusting=trusting)
        except MetastoreError as error:
            return partial(self._failed, error)
        return self._send(decided, withdrawn) if isinstance(decided, Proposal) else partial(self._unchanged, decided)

    def _failed(self, error: MetastoreError) -> NoReturn:
        if self._row.caller is not None and merits(error):
            self._row.keep("failed", encode_error(error))
        raise error

    def _unchanged(self, value: T) -> T:
        self._leases.check()
        self._decided_by = "value"
        if self._row.caller is not None:
            self._row.keep("unchanged", encode_value(cast(Any, value)))
        return value

    def _take_up(self) -> T:
        """Continue after the attempt that a batch, or ``once.py``, made before this operation began."""
        doubt, met, self._doubt, self._met = self._doubt, self._met, None, None
        if doubt is not None:
            return self._row.lost(doubt)
        assert met is not None
        if met.error is not None:
            raise met.error
        assert met.proposal is not None
        self._guessed, self._run = met.guessed, met.run
        if met.commit is None or met.outcome is None:
            return self._send(met.proposal, withdrawn=False)()
        self._propose(met.proposal)
        return self._answered(met.proposal, met.commit, met.outcome)

    def _announce_at_once(self, entity_id: int) -> None:
        """Announce before any attempt. If the announcement is refused, read before the next one."""
        try:
            self._intent.announce(entity_id)
        except Conflict as conflict:
            if conflict.cause == "read":
                self._merge = None
            raise

    # --- the fast path

    def _propose(self, proposal: Proposal[T]) -> Merge | None:
        """Note the conditions of this attempt's commit; return the changes that can be announced."""
        self._exclusive = self._request.exclusive or proposal.exclusive
        self._intent.merge = self._announceable(proposal) or self._merge
        return self._intent.merge

    def _send(self, proposal: Proposal[T], withdrawn: bool) -> Callable[[], T]:
        row, held, merge = self._row, self._mark.held, self._propose(proposal)
        updated = _updated(proposal.writes)
        first = self._merge is None and self._request.read_first and not proposal.evidence
        on_loan = self._lent is not None
        if updated and merge is not None and not on_loan and (withdrawn or (first and self._intent.hot(merge))):
            # the entity is hot, or this call announced the change before: announce it where the path leads now
            self._intent.announce(updated[0])
            # look again at once: the shorter the gap, the less likely is a second withdrawal
            return partial(self._help, updated[0], self._intent.attempt(updated[0]) if withdrawn else None)
        commit = commit_of(
            self._session,
            self._call,
            proposal,
            row.id,
            self._run,
            waits=self._exclusive and held is None,
            claim=row.claim,
            caller=row.caller,
            held=held,
            overlook=self._overlook,
            leases=self._leases.tokens(),
        )
        number, leaves = (self._ticket.number, self._ticket.ids) if self._lent is None else (self._lent, ())
        if number is not None:
            commit = carrying(self._session, replace(commit, ticket=number, leaves=leaves))
        row.sent = True
        return partial(self._answered, proposal, commit, self._committed(commit))

    def _answered(self, proposal: Proposal[T], commit: Commit, outcome: CommitOutcome) -> T:
        row = self._row
        if isinstance(outcome, Unknown):
            return row.lost(outcome)
        row.sent = False
        if isinstance(outcome, Committed):
            self._mark.held = None
            return proposal.finish(outcome.results)
        if outcome.cause == "busy":
            self._again = proposal
        self._check_name(outcome, commit)
        return self._refused(outcome, commit)

    def _committed(self, commit: Commit) -> CommitOutcome:
        outcome = sent(self._backend, commit)
        if commit.leaves and isinstance(outcome, Committed):
            self._ticket.passed()
        return outcome

    def _refused(self, conflict: Conflicted, commit: Commit) -> NoReturn:
        """React to the conflict as the table says, and raise it."""
        cause = conflict.cause
        updated = next((w for w in commit.writes if isinstance(w, Update)), None)
        if REACTIONS[cause].own_mark and self._mark.is_gone():
            raise Conflict("marked", "the mark was taken away, or had not been set", 0.0)
        reaction = Reaction.AT_ONCE if self._goes_on(cause, commit) else self._reaction(cause, updated)
        if reaction is Reaction.RAISE:
            raise self._leases.refused()
        if reaction is Reaction.LOOK:
            self._row.look_next(cause)
        self._line_up(reaction, commit)
        if reaction is Reaction.STEP_ASIDE:
            raise self._mark.step_aside([*[g.id for g in commit.guards], *_updated(commit.writes)])
        if reaction is Reaction.ANNOUNCE and updated is not None:
            if conflict.found is not None and not self._guessed:
                self._session.metrics.overtaken(conflict.found - updated.version)
            if not (self._guessed and self._request.read_first):
                self._intent.announce(updated.id)
        if reaction is Reaction.MARK:
            self._mark.put(updated.id if updated is not None and cause != "busy" else waits_at(commit))
        if reaction is Reaction.HELP:
            helped = [help_others(self._session, entity_id) for entity_id in _updated(commit.writes)]
            self._overlook = not all(helped)
        entity_id, expected = (conflict.id, None) if updated is None else (updated.id, updated.version)
        raise Conflict(cause, detail(conflict), None if reaction is Reaction.BACK_OFF else 0.0, entity_id, expected)

    def _goes_on(self, cause: str, commit: Commit) -> bool:
        """Whether the next attempt uses the ticket of a function around this call, without another reaction."""
        if cause == "ticket" and self._lent is not None:
            self._loan.end()
            return False
        if cause == "ticket":
            return self._loan.may_add(_updated(commit.writes), self._row.ends)
        return self._lent is not None and cause in ("self", "read", "pending")

    def _check_name(self, conflict: Conflicted, commit: Commit) -> None:
        """Raise the error for the name that seemed free, if an entity that is being dropped in steps has it."""
        if conflict.cause == "name" and not self._guessed:
            access = self._session.access
            pending = pending_name(self._backend, None if access is None else access.backend, commit)
            if pending is not None:
                raise pending

    def _line_up(self, reaction: Reaction, commit: Commit) -> None:
        """Wait in line; an operation that steps aside for a mark leaves the line."""
        if reaction is Reaction.QUEUE:
            give_way(self._backend, _updated(commit.writes))
            self._ticket.take(_updated(commit.writes), self._row.ends)
        elif reaction is Reaction.STEP_ASIDE:
            self._ticket.leave()

    def _reaction(self, cause: str, updated: Update | None) -> Reaction:
        row = REACTIONS[cause]
        reaction = row.other
        if updated is not None and self._intent.merge is not None:
            reaction = row.change
        elif self._exclusive and (updated is not None or cause == "busy"):
            reaction = row.exclusive
        if self._guessed and cause != "busy" and reaction in (Reaction.MARK, Reaction.BACK_OFF):
            return Reaction.AT_ONCE  # the guess was outdated: no sign of contention
        return reaction

    # --- the outcome

    def _help(self, entity_id: int, ended: Record | Step | None = None) -> T:
        ended = ended or self._intent.help(entity_id)
        if isinstance(ended, Step):
            return self._ended([ended])
        return cast(T, kind_named(ended.chain[-1].kind).entity(ended))

    def _ended(self, steps: list[Step]) -> T:
        """Return the result of a decided operation, or raise its error, from its rows."""
        row = self._row
        self._decided_by = "self" if row.pending_on is None else "other"
        row.pending_on = None
        try:
            result = self._result_of(steps)
            # skip it for a first call that a helper applied: an attempt was checked, the helper guarded its evidence
            if self._request.judge is not None and (row.is_repeat or self._decided_by == "self"):
                self._request.judge(steps, result)
        except (BackendUnavailable, DeadlineExceeded):
            row.look = True  # the operation is decided: no error may deny that it was applied
            raise
        return result

    def _result_of(self, steps: list[Step]) -> T:
        first, session = steps[0], self._session
        if self._intent.merge is not None and first.entity_id is not None:
            session.hot.note(first.entity_id)
            if first.seq is not None:
                return cast(T, entity_at(first, session.recent.of(first.entity_id)))
        return replay(steps, self._request.replay)


def _updated(writes: Sequence[Write]) -> list[int]:
    return [w.id for w in writes if isinstance(w, Update)]
