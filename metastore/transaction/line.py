"""The place in line of one function's runs, and the information that a lost run leaves to the next one.

The first run is optimistic. A run that lost takes a ticket for each entity that it read or wrote. A first run does so
too if it meets an entity that is known to be hot. Absent names and listings have no row for a ticket: instead their
scope is marked, so that others step aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from typing import cast
from uuid import UUID

from metastore.combine.handle import Term
from metastore.deadlines import GRACE, cleaning
from metastore.errors import DeadlineExceeded
from metastore.names import format_path
from metastore.operation.helping import BATCH, leads_to
from metastore.operation.marks import OwnMark
from metastore.operation.session import Session
from metastore.operation.tickets import OwnTicket, Seen, running
from metastore.port.backend import Reads
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.conditions import ROOT_ID, Absent, Children, Expect, Listing, Newest, Relations
from metastore.port.records import ROOT, Lookup, Pending, Record
from metastore.port.writes import Update
from metastore.retry.runner import Conflict
from metastore.transaction.chained import InChain
from metastore.transaction.turns import Door, door_at

_MOST = 256
"""If a run uses more entities, it takes tickets only for those on which it lost.

Tickets for all would block the others too long.
"""
_TURN = 4
"""How many commits a function may lose in one turn. Then it goes to the end of the line.

A function that has read an entity may change that entity by a call of its own, and so lose each time. Other functions
in line must not wait until its deadline.
"""
_BARRED = 1.0
"""The shortest ttl of a scope's mark (seconds): if the mark's owner dies, the scope stays marked for the ttl."""
_LONGEST_BAR = 5.0
"""The longest ttl of a scope's mark (seconds)."""
_FRESH = 0.005
"""After a longer run, the transaction looks for newly announced changes again (seconds)."""


class InLine:
    """The place in line of one function, for all its runs; see the module."""

    def __init__(self, session: Session, ends: float, chained: InChain | None = None) -> None:
        self._session = session
        self.chained = InChain(session, None) if chained is None else chained
        """The function's part in the chain of an entity, if it takes part in one."""
        self._around = cast("InLine | None", running.get())
        """The place of the function that has called this one, or that has begun this task."""
        self._has_ended = False
        self._mark: OwnMark | None = None
        """The mark of this run."""
        self._ids: set[int] = set()
        self._barred: int | None = None
        self._ends = ends
        self._run = 0.0
        self._lost = 0
        """How many commits the function has lost in its present turn."""
        self._seen: Seen = {}
        self._read_at = 0.0
        self._began_with: dict[int, Pending] = {}
        """The entities as read when this operation's turn began. Each is used once, for its first read."""
        self._door: Door | None = None
        self._inside: Door | None = None
        """The door at which runs inside of the function wait for each other. They use the function's ticket."""
        self._ticket: OwnTicket | None = None
        self._at: tuple[int, ...] = ()
        self._term = Term()

    def enter(self, mark: OwnMark) -> None:
        """Wait for the turn of the next run. ``mark``: the mark for the scope that the run bars at its first read."""
        self._seen, self._began_with, self._mark = {}, {}, mark
        if self._ids:
            self._take()

    def _bar(self) -> None:
        """Mark the scope in which the last run lost: only at the first read, so that calls inside can pass before."""
        if self._barred is not None and self._mark is not None:
            self._mark.put(self._barred, min(max(_BARRED, 4 * self._run), _LONGEST_BAR))

    def _take(self) -> None:
        """Wait for the turn on all known entities: first inside the process, then among the processes."""
        ids, ends_turn = tuple(sorted(self._ids)), self._lost >= _TURN
        if ends_turn:
            self.leave()
        if self._lent is not None and not ends_turn:
            self._join()  # in line, this run would wait for a function around it, which waits for this run
            return
        if self._outer is not None:
            self._outer.give_way(self._session.backend, ids)
        if self._at != ids:
            # a transaction that needs more entities first gives up its tickets: each wait must be for an older ticket
            self.leave()
        self._at = ids
        if self._door is None and self.chained.enter(ids, self._ends):
            return
        if self._door is None and not self.chained.leads and self._enter(door_at(self._session, ids)):
            return
        self._ticket = ticket = OwnTicket(self._session) if self._ticket is None else self._ticket
        ticket.take(ids, self._ends, self._run)
        self._began_with, self._read_at = ticket.seen, self._session.clock.monotonic()
        self.chained.begin()
        if self._door is not None:
            self._door.begin()

    def _enter(self, door: Door) -> bool:
        """Wait at a door, unless a run around this one is inside. Return whether this run continues the last turn."""
        term = door.enter(self._ends, self.chained.runner)
        if term is None:
            return False
        self._door, self._term = door, term  # at once, because an interrupt may come before the next line
        self._ticket = door.follow()
        return self._ticket is not None

    @property
    def ticket(self) -> OwnTicket | None:
        """The ticket that the run uses: its own, or that of a function around this one; None: no ticket."""
        return self._lent if self._own is None else self._own

    @property
    def _own(self) -> OwnTicket | None:
        return None if self._ticket is None or self._ticket.number is None else self._ticket

    @property
    def _lent(self) -> OwnTicket | None:
        """The ticket for these entities, in the same database, of a function around this one.

        Functions between the two may have no ticket, or one for other entities.
        """
        return next((one._own for one in self._outwards() if one._lends_to(self)), None)  # noqa: SLF001

    def _lends_to(self, inner: InLine) -> bool:
        ticket = self._own
        if ticket is None or not inner._ids or not inner._ids.issubset(ticket.ids):
            return False
        return self._is_at(inner._session.backend)

    def _outwards(self) -> Iterator[InLine]:
        """Return the functions around this one, the innermost first."""
        one = self._outer
        while one is not None:
            yield one
            one = one._outer  # noqa: SLF001  (the same class)

    @property
    def _outer(self) -> InLine | None:
        """The innermost function around this one that has not ended."""
        around = self._around
        while around is not None and around._has_ended:  # noqa: SLF001  (the same class)
            around = around._around  # noqa: SLF001
        self._around = around
        return around

    @property
    def is_over(self) -> bool:
        """See :class:`metastore.operation.tickets.Lender`."""
        return self._has_ended and self._outer is None

    @property
    def _joined(self) -> bool:
        """Whether the run waits at the door of a function around it."""
        return self._door is not None and self._own is None

    def _join(self) -> None:
        """Wait for the other runs inside of the same function.

        The functions around the run then read again what it changes.
        """
        if self._door is None:
            # a joined function in between keeps its place until it ends: runs inside of it wait for each other
            place = next(one for one in self._outwards() if one._lends_to(self) or one._joined)  # noqa: SLF001
            place._inside = place._inside or Door(self._session.clock)  # noqa: SLF001  (the same class)
            self._enter(place._inside)  # noqa: SLF001  (the same class)

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Let the runs and calls that begin in this block use the ticket of this function."""
        running.set(self)
        try:
            yield
        finally:
            running.set(self._around)

    def loan(self, session: Session, ids: AbstractSet[int], ends: float) -> AbstractContextManager[int | None] | None:
        """See :class:`metastore.operation.tickets.Lender`."""
        inside = InLine(session, ends)
        inside._ids = set(ids)
        return None if inside._lent is None else inside._lent_to()

    def give_way(self, backend: Reads, ids: Iterable[int]) -> None:
        """See :class:`metastore.operation.tickets.Lender`."""
        for one in (self, *self._outwards()):
            if one._mark is not None:  # noqa: SLF001  (the same class)
                one._mark.remove()  # noqa: SLF001
            if (own := one._own) is not None and own.has_turn:  # noqa: SLF001
                more = one._ids.union(ids)  # noqa: SLF001
                if len(more) <= _MOST and one._is_at(backend):  # noqa: SLF001
                    one._ids = more  # noqa: SLF001
                one.leave()

    def _is_at(self, backend: Reads) -> bool:
        return self._session.backend.origin.database == backend.origin.database

    def outdate(self) -> None:
        """See :class:`metastore.operation.tickets.Lender`."""
        for one in (self, *self._outwards()):
            one._began_with = {}  # noqa: SLF001  (the same class)

    def unbar(self, operation_id: UUID) -> bool:
        """See :class:`metastore.operation.tickets.Lender`."""
        for one in (self, *self._outwards()):
            if (mark := one._mark) is not None and mark.id == operation_id and mark.held is not None:  # noqa: SLF001
                one._barred = None  # noqa: SLF001
                mark.remove()
                return True
        return False

    @contextmanager
    def _lent_to(self) -> Iterator[int | None]:
        try:
            if self._lent is not None:
                self._join()
            yield None if self._lent is None else self._lent.number
        finally:
            self.over()

    def over(self) -> None:
        """Leave the line after the last run."""
        try:
            self.leave()
        finally:
            # a task may keep this place after its end; it must not keep the ended places around it in memory
            self._around, self._has_ended = self._outer, True

    def leaves(self, ticket: OwnTicket) -> tuple[int, ...]:
        """Return the entities from which the commit removes the ticket.

        (): the turn goes on, or needs a gap, or the ticket belongs to a function around this one.
        """
        goes_on = self._door is not None and self._door.goes_on
        return () if goes_on or ticket is not self._ticket or not ticket.is_short else ticket.ids

    def meet(self, lookups: Sequence[Lookup], ids: Sequence[int]) -> dict[Lookup, Record]:
        """Before a run's first read, take a ticket if the entity is known to be hot, and bar the scope.

        Return the entities that were read when the turn began, by the path that led to each.
        """
        hot = self._session.hot
        if not self._ids and self._barred is None:
            tickets = [hot.find(None, _address(one)) for one in lookups] + [hot.find(one, None) for one in ids]
            self._ids = {one for one in tickets if one is not None}
            try:
                if self._ids:
                    self._take()
            except Conflict as late:  # the caller's function must not see this error
                raise DeadlineExceeded(f"the transaction was not run: {late.detail}; call again") from None
        self._bar()
        if len(lookups) != 1 or lookups[0].start is not ROOT:
            return {}
        shown = self.chained.show(lookups[0])
        return shown or self._begun(lookups[0], hot.find(None, _address(lookups[0])))

    def _begun(self, lookup: Lookup, entity_id: int | None) -> dict[Lookup, Record]:
        """Read an entity and its intents in one snapshot, if the path still leads to it."""
        if self.ticket is None or entity_id is None or entity_id not in self.ticket.ids:
            return {}
        read_at, seen = self._read_at, self._began_with.pop(entity_id, None)
        if seen is None:
            seen, read_at = self._session.backend.pending(entity_id, None, BATCH), self._session.clock.monotonic()
        if (
            seen.known is None
            or not seen.known.live
            or not leads_to(format_path(lookup.names), seen.known.record.chain)
        ):
            return {}
        self._seen, self._read_at = {entity_id: seen}, read_at
        self.chained.began(seen)
        return {lookup: seen.known.record}

    @property
    def seen(self) -> Seen:
        """The entities read when the turn began; {}: this is too long ago, so others may have announced more."""
        return self._seen if self._session.clock.monotonic() - self._read_at < _FRESH else {}

    def lost(self, commit: Commit, cause: str, addresses: dict[Lookup, int], lost_on: int | None = None) -> bool:
        """Note why a run lost; return whether the next run is in line. ``lost_on``: the entity that changed."""
        if cause not in ("self", "read", "pending", "ticket"):
            return False
        self._lost = 0 if self.ticket is None else self._lost + 1
        lent = self._lent
        under = [r for r in commit.reads if isinstance(r, Absent | Listing | Children | Newest | Relations)]
        if cause == "read" and under:
            scopes = [r.id if isinstance(r, Relations) else r.parent_id for r in under]
            self._barred = next((i for i in scopes if i != ROOT_ID), None)
        ids = {w.id for w in commit.writes if isinstance(w, Update)}
        ids |= {r.id for r in commit.reads if isinstance(r, Expect) and not r.owned}
        if len(ids | self._ids) > _MOST:
            ids &= {lost_on}  # too many for one ticket: add only the entity on which this run lost
        if len(ids | self._ids) <= _MOST:
            self._ids |= ids
        if cause == "ticket" and lent is not None and lent is self._lent:
            lent.number = None  # the oldest ticket was refused: others removed it, because it did not move for long
        self.note(self._ids, addresses)
        return bool(self._ids) or self._barred is not None

    def note(self, ids: set[int], addresses: dict[Lookup, int]) -> None:
        """Note that entities are hot, with the paths that led to them."""
        for entity_id in ids:
            self._session.hot.note(entity_id)
        for lookup, entity_id in addresses.items():
            if entity_id in ids:
                self._session.hot.note(entity_id, _address(lookup))

    def took(self, seconds: float) -> None:
        """Note how long a run of the function took."""
        self._run = seconds

    def leave(self) -> None:
        """Leave the line: the runs are over, or others must go first."""
        self._lost = 0
        door, self._door, ticket, self._ticket = self._door, None, self._ticket, None
        with cleaning(self._session.clock.monotonic() + GRACE):
            try:
                if door is not None:
                    door.leave(self._term, ticket, self.chained.runner)
                elif ticket is not None:
                    ticket.leave()
            finally:
                self.chained.leave()

    def together(self, commit: Commit, looked_back: bool) -> CommitOutcome | None:
        """Commit with the chain; return None if the run goes alone. ``looked_back``: it has read a history."""
        ticket = self._own
        outcome = self.chained.send(commit, ticket, looked_back)
        if outcome is not None and ticket is not None:
            self._ticket = None
            with cleaning(self._session.clock.monotonic() + GRACE):
                ticket.leave()  # if this run is lost, the next one needs another turn
        return outcome


def _address(lookup: Lookup) -> tuple[str, tuple[str, ...]]:
    return lookup.families[-1], lookup.names  # the kind and path, if only one kind is in the family of this name
