"""A chain: callers of one process that write one entity run one after the other, and commit together.

Functions that run in transactions (``store.run``) and plain alters take part. One caller *leads*. A leading function
runs on the database's state. When it has ended, its caller serves the waiting callers: it gives each function its turn,
in the function's own thread, on the uncommitted state that the previous one left. Then it decides the alters, and sends
all steps as one :class:`~metastore.port.batches.AlterTogether`. A leading alter does the same, without a function of
its own. Each step keeps its operation id, its principal, its version and its row of history.

* No caller gets an answer before that commit: no result, no value of a function without writes, and no error. If the
  commit is lost, the functions run again, and the alters go with the next chain.
* A function is a *simple link* if it only reads and alters this entity. Any other function *cuts* the chain, and so
  does one that takes longer than ``SLOW``: the steps before it are committed, and then it runs alone.
* If no other caller waits when a leading function ends, its caller commits alone.
* While another process competes, the leader first takes a ticket (:mod:`metastore.operation.tickets`). Otherwise it
  begins with the state that the last chain left, without a read. In both cases the commit checks the version.

Each decision between two threads is one atomic step: the lane (:mod:`~.lane`) decides who leads, and :meth:`Link.end`
how a turn ended. So an interrupt between any two lines may cost a chain, but no answer. A function that does not come
back cuts the chain. A function whose leader does not come back looks up its outcome by its operation id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from metastore.clock import Alive
from metastore.combine.decided import MOST_BYTES, commit
from metastore.combine.group import Group
from metastore.combine.handle import BY_AGE, Handle, Term
from metastore.combine.handle import Batch as Taken
from metastore.combine.lane import Tell
from metastore.combine.link import ALONE, SETTLED, SLOW, STEPS, Answer, ChainLane, Link, Rider
from metastore.combine.reads import batches
from metastore.deadlines import GRACE, cleaning
from metastore.kinds.registry import kind_named
from metastore.operation.guards import key_under
from metastore.operation.helping import BATCH
from metastore.operation.hot import ForgetfulMap
from metastore.operation.request import Request
from metastore.operation.session import ManagerSession, Session
from metastore.operation.tickets import OwnTicket
from metastore.port.batches import Altered, Batch
from metastore.port.commit import Commit, Conflicted, Unknown
from metastore.port.records import Pending, Record

_PATIENCE: Final = 5.0
"""After this time another caller leads beside one that waits in line or for its commit (seconds)."""
_COMPETES, _STAYS = 1.0, 0.1
"""How long another process counts as a competitor; how long a chain may begin with the last one's state, and alters
wait for the chain (seconds).
"""


class Seat:
    """The place of one run in a chain: the run leads, or it has its turn on an uncommitted state."""

    def __init__(self, link: Link, term: Term | None, handle: Handle[Link, Any] | None, runner: Alive) -> None:
        self.link, self.handle, self.runner = link, handle, runner
        self.term = term
        """None: the run follows."""
        self.base = link.base
        """The state that the function sees; None: it reads the database, or sees the state when its turn began."""


class Chain:
    """The chain of one entity; see the module's docstring."""

    def __init__(self, session: Session, entity_id: int) -> None:
        self._session, self._clock, self._id = session, session.clock, entity_id
        self.lane = ChainLane(session.clock)
        self._inside: list[Alive] = []
        """The callers that lead or have their turn. Calls that their functions make go alone.

        It needs no lock: each thread adds and removes only itself, in atomic steps.
        """
        self._kept: tuple[Record, str | None] | None = None
        self._until = self._competes = 0.0
        self.unfit: ForgetfulMap[float] = ForgetfulMap()
        """The functions that have cut a chain, and the time until which each runs alone."""

    @property
    def is_open(self) -> bool:
        """Whether alters wait for the chain."""
        if self._clock.runner() in self._inside:
            return False
        return (self.lane.is_led and not self.lane.is_stuck) or self._until > self._clock.monotonic()

    def enter(self, ends: float, me: Alive) -> Seat | None:
        """Wait until a function leads or has its turn. Return None if it runs alone. Raises DeadlineExceeded.

        ``me``: the thread or task of the function.
        """
        if me in self._inside:
            return None
        link, term, handle = Link(self._clock), self.lane.lead(), None
        try:
            if term is None:
                handle = self.lane.submit(link, ends)
                self.lane.wait(handle)
                term = handle.stay.term if handle.leads else None
            if term is None and link.base is None:
                link.end("gone")
                return None
            self.lane.move(_PATIENCE)
            self._inside.append(me)
            return Seat(link, term, handle, me)
        except BaseException:
            if handle is not None:
                self.lane.give_up(handle)
            self.leave(Seat(link, term, handle, me))
            raise

    def leave(self, seat: Seat) -> None:
        """End one run's part in the chain, whatever its outcome."""
        if seat.runner in self._inside:
            self._inside.remove(seat.runner)
        seat.link.end("gone")
        if seat.term is not None:
            self.lane.leave(seat.term)

    def wait_in_line(self) -> None:
        """Note that a leading run waits in line; that time does not count as its function's time."""
        self.lane.move(_PATIENCE)

    def kept(self) -> Record | None:
        """Return the record that the last chain left, if no other process competes: a guess that the commit checks."""
        now, kept = self._clock.monotonic(), self._kept
        if kept is None or self._competes > now or self._until < now:
            return None
        return kept[0] if kept[1] == self._session.backend.origin.run else None

    def let_go_alone(self, seat: Seat) -> Record | None:
        """Let a leader commit alone.

        Forget and return the record that the last chain left, because the leader commits after it.
        """
        if seat.term is not None:
            self.lane.begin_commit(seat.term)
        kept, self._kept = self.kept(), None
        return kept

    def keep(self, record: Record, run: str | None) -> None:
        """Note the record that a leader left when it committed alone; ``run``: the server's run in which it read."""
        self._kept = record, run

    def answer(self, seat: Seat) -> Answer:
        """Wait until it is known whether the state on which a function ran was committed."""

        def unanswered(_: object) -> Answer:
            # the leader was interrupted, or the call's time is over; a message with the step may be in flight
            return self._lost() if seat.link.step is None else Unknown("its chain has no answer")

        assert seat.handle is not None
        # a function that has had its turn is never elected
        answer: Answer = self.lane.result(seat.handle, unanswered, lambda _: _tells_nothing)
        return answer

    def lead(self, seat: Seat, step: Commit, base: Record, seen: Pending | None, ticket: OwnTicket | None) -> Answer:
        """Commit a leader's step with the waiting callers. Return ALONE if the leader must commit alone.

        ``seen``: the state read when its ticket's turn began.
        """
        term, lane = seat.term, self.lane
        assert term is not None
        is_plain = seen is None or _is_plain(seen)
        if not lane.begin_commit(term) or not is_plain:  # a lone commit may take longer than a function
            return ALONE
        mine: Rider = Handle(seat.link, 0.0, -1, self._clock.waker())
        with Taken(term) as batch:
            lane.move(_PATIENCE)
            others = lane.more(term, batch)
            if not others or not seat.link.end(step):
                lane.back(others)
                return ALONE
            group = Group(base, fresh=False)
            group.helps = seen is not None
            group.decide(mine, base, set())
            tell = self._travel(group, others, seen, ticket, step.run, [mine])
            lane.leave(term)
            tell()
        answer: Answer = mine.take(lambda _: Unknown("its chain was interrupted"))
        return answer

    def together(self, handles: Sequence[Rider]) -> Tell:
        """Send a chain that an alter leads; the lane calls this."""
        leader = next(one for one in handles if one.leads)
        run = self._session.backend.origin.run  # read first: the commit checks that the run is still the same
        term, base, ticket, seen = leader.stay.term, self.kept(), None, None
        self.lane.move(_PATIENCE)
        me = self._clock.runner()
        try:
            self._inside.append(me)  # a hook that runs meanwhile must not wait for this thread
            if base is None:
                ticket = OwnTicket(self._session)
                ticket.take([self._id], leader.ends)
                self.lane.move(_PATIENCE)
                seen = ticket.seen.get(self._id) or self._session.backend.pending(self._id, None, BATCH)
                if not _is_plain(seen):
                    return _tells_nothing  # each caller then goes alone, by its full operation
                assert seen.known is not None
                base = seen.known.record
            # not fresh: callers that come after this read join too, so its state cannot answer them without the commit
            group = Group(base, fresh=False)
            group.helps = seen is not None
            # let callers that came meanwhile take part
            others = [] if term.batch is None else self.lane.more(term, term.batch)
            return self._travel(group, [leader, *others], seen, ticket, run, [])
        finally:
            if me in self._inside:  # an interrupt may have come before the append
                self._inside.remove(me)
            if ticket is not None:
                with cleaning(self._clock.monotonic() + GRACE):
                    ticket.leave()

    def _travel(
        self,
        group: Group,
        handles: Sequence[Rider],
        seen: Pending | None,
        ticket: OwnTicket | None,
        run: str | None,
        led: list[Rider],
    ) -> Tell:
        """Serve all callers, commit, and return the function that answers them.

        ``led``: the leader's own link with its step, if a function leads.
        """
        chain, self._kept = object(), None
        for one in handles:
            one.request.taken = True
            one.request.under_way.add(chain)
        try:
            if seen is not None:
                group.resolve(seen)
            begun, later = self._decide(group, handles)
            links = [*led, *begun]
            altered = self._commit(group, ticket, run)
            applied = altered is not None and altered.time is not None
            self._note(group, altered, run, ticket)
            if altered is not None and not applied:
                # let the callers go with the next chain: it has a ticket, and carries the announced changes
                lost = altered._replace(pending=altered.pending or altered.queued, queued=False)
                later += list(group.behind(lost, None))
            self.lane.back(sorted(later, key=BY_AGE))
        finally:
            for one in handles:
                one.request.under_way.discard(chain)

        def tell() -> None:
            group.tell(altered, None)
            for one in links:
                if not one.answered:
                    one.answer(self._answer(one.request, group, altered))

        return tell

    def _decide(self, group: Group, handles: Sequence[Rider]) -> tuple[list[Rider], list[Rider]]:
        """Give the functions their turns, then decide the alters.

        Return the links that had a turn, and the callers that still wait.
        """
        begun, later, left = list[Rider](), list[Rider](), MOST_BYTES
        # do not count the announced changes that the chain carries: 64 of them would leave no room for its own steps
        most = STEPS + sum(step.carried is not None for step in group.steps)
        ends, cut = self._clock.monotonic() + SLOW, False
        for one in sorted(handles, key=lambda one: (not isinstance(one.request, Link), one.number)):
            link = one.request if isinstance(one.request, Link) else None
            # no function begins after one that has cut the chain; alters take no time, and join the same commit
            over = link is not None and (cut or self._clock.monotonic() > ends)
            if over or left <= 0 or len(group.steps) >= most:
                later.append(one)
            elif link is not None:
                link.handle = one
                begun.append(one)
                left -= group.decide(one, group.first, set())
                cut = link.cuts
            elif _leads_to(one.request, group.first):
                left -= group.decide(one, group.first, set())
        return begun, later

    def _commit(self, group: Group, ticket: OwnTicket | None, run: str | None) -> Altered | None:
        """Send the steps; return their result. Return None if nothing was sent or applied, or nothing is known."""
        if group.together is None:
            return None
        number = None if ticket is None else ticket.number
        leaves = ticket is not None and ticket.is_short
        alters = group.alters()._replace(ticket=number, leaves=leaves)
        backend, batch = batches(self._session), Batch(alters=[alters], run=run)
        written = self._session.backend.in_one_go(lambda: commit(group.members, batch, backend), for_many=True)
        if written is None:
            return None
        if written.alters[0].time is not None and leaves and ticket is not None:
            ticket.passed()
        return written.alters[0]

    def _note(self, group: Group, altered: Altered | None, run: str | None, ticket: OwnTicket | None) -> None:
        """Note the record that the chain left, and whether other processes compete."""
        now = self._clock.monotonic()
        # if no second caller commits for a while, callers run again as if there were no chain
        if len(group.members) > 1 and group.together is not None:
            self._until = now + _STAYS
            self._session.hot.note(self._id)
        if altered is not None and altered.time is not None:
            self._kept = group.record._replace(modified_at=altered.time), run
            self._session.metrics.batch(len(group.steps))
        if (group.together is not None and self._kept is None) or (ticket is not None and not ticket.alone):
            self._competes = now + _COMPETES

    def _answer(self, link: Link, group: Group, altered: Altered | None) -> Answer:
        """Return the answer to a link whose step was not applied, or that has no step."""
        if group.together is None and (link.base is None or link.base.version == group.first.version):
            return ALONE
        if link.step is None:
            return SETTLED if altered is not None and altered.time is not None else self._lost()
        return self._lost() if link.doubt is None else link.doubt

    def _lost(self) -> Conflicted:
        return Conflicted("self", self._id)


def chain_at(session: Session, entity_id: int) -> Chain:
    """Return the chain of an entity. If a chain was forgotten, a new one costs at most a lost commit."""
    chain: Chain | None = session.chains.get(entity_id)
    if chain is None:
        chain = Chain(session, entity_id)
        session.chains.set(entity_id, chain)
    return chain


def chain_for(session: ManagerSession, request: Request[Any]) -> Chain | None:
    """Return the chain that a request waits for; None if it is not an alter, or its entity has no open chain."""
    merge = request.merge
    if merge is None or request.verb != "alter":
        return None
    entity_id = session.hot.find(merge.entity_id, merge.names and (merge.kind, merge.names))
    chain: Chain | None = session.chains.get(entity_id)
    return chain if chain is not None and chain.is_open else None


def _leads_to(request: Any, record: Record) -> bool:
    """Whether an alter changes this entity, by its path or its loaded entity."""
    below = request.below
    if request.path is None or below is None:
        return request.record is not None and request.record.chain[-1].id == record.chain[-1].id
    *_, parent, node = (None, *record.chain)
    key = node.name if parent is None else key_under(parent, node.name)
    return bool(below.parents == record.chain[:-1] and (below.family, below.key) == (kind_named(node.kind).family, key))


def _is_plain(seen: Pending) -> bool:
    """Whether a chain may begin with this state: the entity is live, and no intent needs a user's rights."""
    return seen.known is not None and seen.known.live and all(intent.fences is None for intent in seen.intents)


def _tells_nothing() -> None:
    """Give no caller an answer, so that each goes alone."""
