"""The part that one function's runs have in the chain of an entity: see :mod:`metastore.combine.chain`."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any, Final

from metastore.combine.chain import Chain, Seat, chain_at
from metastore.combine.link import ALONE, SETTLED, SLOW, Answer, End, fits
from metastore.kinds.registry import kind_named
from metastore.names import format_path
from metastore.operation.helping import leads_to
from metastore.operation.session import Session
from metastore.operation.tickets import OwnTicket
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.port.records import Lookup, Pending, Record
from metastore.port.writes import Result, Update

_MOST_LOST: Final = 2
"""How many chains a function may lose before it waits in line alone."""
_UNFIT: Final = 1.0
"""How long a function goes alone after it has cut a chain (seconds)."""


def code_of(function: Any) -> object:
    """Return the identity of a function. For a partial, return those of its parts: a task's function is an argument."""
    kind = type(function)
    if kind is partial:
        return (code_of(function.func), *[code_of(part) for part in function.args])
    if kind is MethodType:
        return code_of(function.__func__)
    # look only at the type: reading an argument's own attributes may run code, and return any value
    return function.__code__ if hasattr(kind, "__code__") else kind


class InChain:
    """One function's runs in a chain. ``function``: its identity; None: it takes part in no chain."""

    def __init__(self, session: Session, function: object | None) -> None:
        self._session, self._function = session, function
        self.runner: Final = session.clock.runner()
        """The thread or task of the function. Another thread or task may make its first read."""
        self._chain: Chain | None = None
        self._seat: Seat | None = None
        self._seen: Pending | None = None
        self._lost = 0
        self._outdated: Record | None = None
        """The state that the last chain left, for a leading run that commits alone."""

    @property
    def leads(self) -> bool:
        """Whether the run leads the chain."""
        return self._seat is not None and self._seat.term is not None

    def enter(self, ids: tuple[int, ...], ends: float) -> bool:
        """Wait for the run's part in the chain. Return False if the run must take a ticket, and wait for its turn."""
        self._seen = None
        if self._seat is not None and self._chain is not None:
            self._seat.base = None  # the run lost on this state; the function still leads
            self._chain.wait_in_line()
            return False
        if self._function is None or len(ids) != 1 or self._lost >= _MOST_LOST:
            return False
        chain = chain_at(self._session, ids[0])
        if self._is_kept_out(chain):
            return False
        self._chain = chain
        self._seat = seat = chain.enter(ends, self.runner)
        if seat is None:
            return False
        if seat.term is not None and self._is_kept_out(chain):
            self.leave()  # a run of the function has cut the chain meanwhile: the others need not lead one by one
            return False
        if seat.term is not None:
            seat.base = chain.kept()
        if seat.base is not None:
            self.begin()
        return seat.base is not None

    def begin(self) -> None:
        """Note that the function of a leading run begins or continues."""
        if self.leads and self._chain is not None:
            self._chain.lane.move(SLOW)

    def began(self, seen: Pending) -> None:
        """Note the state with which the turn of a leading run began."""
        if self.leads and self._seat is not None and seen.known is not None:
            self._seen, self._seat.base = seen, seen.known.record

    def show(self, lookup: Lookup) -> dict[Lookup, Record]:
        """Return the state that the run sees, if a path leads to its entity."""
        base = None if self._seat is None else self._seat.base
        if base is None or self._seen is not None:
            return {}
        same = kind_named(base.chain[-1].kind).family == lookup.families[-1]
        return {lookup: base} if same and leads_to(format_path(lookup.names), base.chain) else {}

    def send(self, commit: Commit, ticket: OwnTicket | None, looked_back: bool) -> CommitOutcome | None:
        """Commit with the others of the chain. Return None if the run goes alone, as without a chain.

        ``looked_back``: the function has read the history of an entity.
        """
        seat, chain, self._outdated = self._seat, self._chain, None
        if seat is None or chain is None:
            return None
        simple = seat.base is not None and fits(commit, seat.base)
        if seat.term is None:
            told = self._told(chain, seat, (commit if commit.writes else "value") if simple else "cut", looked_back)
            if told != SETTLED:
                return self._counted(told)
            # a function without a write is done; one that cut the chain goes alone, on the committed state
            return None if not simple or seat.link.cuts else Committed(())
        if simple and seat.base is not None and commit.writes and not self._is_slow(chain):
            answer = chain.lead(seat, commit, seat.base, self._seen, ticket)
            if answer != ALONE:
                self.leave()
                return self._counted(answer)
        self._outdated = chain.let_go_alone(seat)
        return None

    def committed(self, commit: Commit, results: tuple[Result | None, ...]) -> None:
        """Note the state that a leading run has committed alone: the next chain begins with it."""
        before, chain = self._outdated, self._chain
        if before is None or chain is None or not fits(commit, before) or not commit.writes:
            return
        write, result = commit.writes[0], results[0]
        if isinstance(write, Update) and write.doc is not None and result is not None:
            after = before._replace(version=result.version, doc=write.doc, modified_at=result.time)
            chain.keep(after._replace(modified_by=commit.principal), commit.run)

    def _told(self, chain: Chain, seat: Seat, end: End, looked_back: bool) -> Answer:
        """End the turn of a run that follows, and wait for its answer."""
        in_time = seat.link.end("cut" if looked_back else end)
        if seat.link.cuts:
            self._lost += 1  # the chain's alters may be committed first, and then the run's own commit is lost
            self._keep_out(chain, late=not in_time)
        try:
            answer = chain.answer(seat)
            # the history that the run has read lacks the earlier steps of its chain, even if they are committed now
            return Conflicted("self") if looked_back and answer == SETTLED else answer
        finally:
            self.leave()

    def _counted(self, answer: Answer) -> CommitOutcome | None:
        self._lost += isinstance(answer, Conflicted)
        return None if isinstance(answer, str) else answer

    def _is_slow(self, chain: Chain) -> bool:
        if not chain.lane.is_stuck:
            return False
        self._keep_out(chain, late=True)
        return True

    def _is_kept_out(self, chain: Chain) -> bool:
        return (chain.unfit.get(self._function) or 0.0) > self._session.clock.monotonic()

    def _keep_out(self, chain: Chain, *, late: bool) -> None:
        """Let all runs of the function go alone for a while; after a late run, only if an earlier one was late.

        One late run may have had no processor, and many callers may run this function.
        """
        now, before = self._session.clock.monotonic(), chain.unfit.get(self._function)
        forgiven = late and (before is None or before < now - _UNFIT)
        chain.unfit.set(self._function, now if forgiven else now + _UNFIT)

    def ended(self) -> None:
        """Note that a run is over. The function of a leading run keeps its place for the next run."""
        if self._seat is not None and self._seat.term is None:
            self.leave()

    def leave(self) -> None:
        """Leave the chain."""
        seat, self._seat = self._seat, None
        if seat is not None and self._chain is not None:
            self._chain.leave(seat)
