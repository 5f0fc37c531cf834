"""One run of a function in a chain (:mod:`~.chain`), and the lane in which it waits for its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal
from uuid import UUID

from metastore.clock import Clock, Waker
from metastore.combine.handle import Handle, Term
from metastore.combine.lane import PATIENCE, Lane
from metastore.combine.waiting import Left
from metastore.errors import DeadlineExceeded
from metastore.operation.helping import own_guards
from metastore.operation.kept_result import OF_THE_COMMIT
from metastore.operation.request import Proposal
from metastore.port.commit import Commit, CommitOutcome, Committed, Unknown
from metastore.port.conditions import Expect
from metastore.port.records import Record
from metastore.port.writes import Update

SLOW: Final = 0.02
"""A function that takes longer (seconds) cuts its chain. No function begins in a chain that has taken longer."""
STEPS: Final = 64
"""How many steps a chain has at most."""
_ENOUGH: Final = 1.0
"""A caller with less time left leads only if no other has more (seconds)."""
Rider = Handle[Any, Any]
"""An alter (:class:`~.waiting.Waiting`) or a function (:class:`~.link.Link`) that waits."""
SETTLED: Final = "settled"
"""The answer to a run without a step: the state that it saw was committed."""
ALONE: Final = "alone"
"""The answer to a run without a step: the chain has sent nothing, so the run rests on no uncommitted state."""
Answer = CommitOutcome | Literal["settled", "alone"]

End = Commit | Literal["value", "cut", "gone"]
"""The end of a turn: a step; a value or an error ("value"); anything else ("cut"); an interrupted caller ("gone")."""


class Link:
    """One run of a function that waits for its turn. To a :class:`~.group.Group` it looks like a request."""

    __slots__ = ("_clock", "_end", "_turn", "doubt", "handle", "taken", "under_way")
    path = None
    may_return = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn: tuple[Record, Waker] | None = None
        self._end: dict[None, End] = {}
        self.handle: Handle[Any, Any] | None = None
        self.doubt: Unknown | None = None
        self.taken = False
        self.under_way = set[object]()

    @property
    def request(self) -> Link:
        """The link itself, which serves as its own request."""
        return self

    @property
    def verb(self) -> str:
        return "alter"

    @property
    def base(self) -> Record | None:
        """The state on which the function runs; None: it has had no turn yet."""
        return None if self._turn is None else self._turn[0]

    def end(self, end: End) -> bool:
        """End the turn; return False if it had ended, because the leader no longer waits. (``setdefault`` is atomic)"""
        mine = self._end.setdefault(None, end) is end
        if self._turn is not None:
            self._turn[1].wake()
        return mine

    @property
    def step(self) -> Commit | None:
        """The step that the function adds to the chain."""
        end = self._end.get(None)
        return end if isinstance(end, Commit) else None

    @property
    def cuts(self) -> bool:
        """Whether the chain ends before this function."""
        return self._end.get(None) == "cut"

    @property
    def id(self) -> UUID:
        assert self.step is not None
        return self.step.operation_id

    @property
    def principal(self) -> str | None:
        assert self.step is not None
        return self.step.principal

    def decide(self, record: Record) -> Proposal[CommitOutcome] | str:
        """Give the function its turn on ``record``; return its step, or SETTLED if it has none. Raises Left."""
        if not self._end and self.handle is not None:
            back = self._clock.waker()
            is_timed = record.modified_at != OF_THE_COMMIT
            self._turn = record if is_timed else record._replace(modified_at=self._clock.micros()), back
            self.handle._waker.wake()  # noqa: SLF001  (as the lane wakes it)
            ends = self._clock.monotonic() + SLOW
            while not self._end and (left := ends - self._clock.monotonic()) > 0:
                back.wait(left)
            self._end.setdefault(None, "cut")
        end = self._end[None]
        if isinstance(end, Commit):
            return Proposal(own_guards(record.chain), end.writes, Committed)  # an alter's guards
        if end == "value":
            return SETTLED
        raise Left

    def lost(self, *_: object) -> None:
        """Note that the chain was not applied, so the link's outcome is not in doubt.

        The caller counts the loss when it gets the answer.
        """
        self.doubt = None  # otherwise the caller would look up the outcome, which costs a commit

    overtaken = outdated = hindered = queued = lost

    def ended(self, *_: object) -> None:
        """Do nothing: the transaction counts itself."""


def fits(one: Commit, base: Record) -> bool:
    """Whether a commit only alters or reads this entity, on this state."""
    rare = one.leases or one.evidence or one.publishes or one.carries or one.skip_existing or one.overlook
    bound = (one.caller, one.held, one.advance, one.reason, one.ticket)
    node, parents = base.chain[-1], {n.id: n.scope_version for n in base.chain[:-1]}
    above = {g.id: g.scope_version for g in one.guards if (g.id, g.scope_version) != (node.id, node.scope_version)}
    if not parents or rare or one.claim or any(part is not None for part in bound) or above != parents:
        return False
    if any(guard.exclusive or guard.bump for guard in one.guards):
        return False
    if not one.writes:
        return one.reads == (Expect(node.id, base.version),)
    write = one.writes[0]
    if one.reads or len(one.writes) > 1 or not isinstance(write, Update) or write.doc is None:
        return False
    event, plain = write.event, Update(node.id, base.version, write.event, write.doc)
    return write == plain and event.action == "alter" and event.path_before == event.path_after is not None


class ChainLane(Lane[Any, Any]):
    """The lane of a chain. Its leader has a time limit for each of its tasks."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, STEPS, patience=SLOW)
        self._may_take, self._moved = 0.0, 0.0

    def move(self, may_take: float) -> None:
        """Note that the leader begins its next task, which may take this long (seconds)."""
        self._may_take, self._moved = may_take, self._clock.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Whether the leader takes longer than allowed."""
        return self._clock.monotonic() - self._moved > self._may_take

    @property
    def is_led(self) -> bool:
        """Whether there is a leader."""
        return self._token.locked()

    def _leads(self, handle: Rider) -> bool:
        self.move(PATIENCE)  # not longer: an interrupt may have hit the caller before it noticed its election
        return super()._leads(handle)

    def _best(self, candidates: Sequence[Rider]) -> Rider:
        """Return the oldest caller with enough time left; if there is none, the one with the most time left.

        The leading function may go alone, so any other choice could keep the oldest waiting. A caller with hardly any
        time left cannot wait for a turn among the processes: another leader should take this caller along.
        """
        enough = self._clock.monotonic() + _ENOUGH
        fit = [one for one in candidates if one.ends > enough]
        return fit[0] if fit else super()._best(candidates)

    def _take_over(self, term: Term) -> None:
        if self.is_stuck:
            super()._take_over(term)

    def begin_commit(self, term: Term) -> bool:
        """Note that the leader of a term commits; return whether it still leads and others wait."""
        leads = self._term is term
        if leads:
            self.move(PATIENCE)
        return leads and bool(self._queue)

    def wait(self, handle: Rider) -> None:
        """Wait until a function has its turn, leads, or goes alone. Raises DeadlineExceeded."""
        while not (handle.request.base is not None or handle.goes_on):
            if not self._woken(handle):
                raise DeadlineExceeded(_LATE)
            if not handle.stay.waits and not handle.leads and self._clock.monotonic() >= handle.ends:
                handle.stay.end()


_LATE: Final = "the transaction was not run: others of this process were in line before it; call again"
