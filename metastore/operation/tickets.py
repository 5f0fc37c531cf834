"""Wait in line for entities that others write all the time, with one ticket for each waiting operation.

An operation that has its turn commits by a compare-and-swap, like any other operation. While its ticket exists, the
database refuses other commits on its entities. docs/progress.md has the protocol and the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

from metastore.clock import process_id
from metastore.errors import InvalidArgument, MetastoreError
from metastore.operation.helping import BATCH, BatchSize, evidence_of, plan
from metastore.operation.kept_result import OF_THE_COMMIT
from metastore.operation.session import Session
from metastore.port.backend import Intents, Reads
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.intents import Help
from metastore.port.records import Pending
from metastore.port.tickets import Line
from metastore.port.writes import Update
from metastore.retry.runner import Conflict

_PATIENCE, _LONGEST_PATIENCE = 0.25, 5.0
"""How long the head of a line may wait without a move, at least and at most (seconds)."""
_LONG = 0.02
"""After a longer turn, the others get a gap of the same length (seconds)."""
_SHORTEST_WAIT, _LONGEST_WAIT, _NEXT_WAIT = 0.0005, 0.1, 0.03
"""How long a waiter sleeps between two looks (seconds). The next one in line looks soon, or it would count as dead."""


class Lender(Protocol):
    """A running function's place in line. A call inside of the function must not wait for it, or neither would end."""

    @property
    def is_over(self) -> bool:
        """Whether the function and all those around it have ended. A task that the function began keeps the place."""

    def loan(self, session: Session, ids: AbstractSet[int], ends: float) -> AbstractContextManager[int | None] | None:
        """Return a block on the ticket of the function or of one around it; None: no such ticket for these entities.

        The block waits for other calls inside of the function, and yields the ticket; None: the ticket is gone.
        """

    def give_way(self, backend: Reads, ids: Iterable[int]) -> None:
        """Leave the functions' lines, and remove their marks, because a call inside of them waits for others.

        ``ids``: the call waits in line for these entities. The functions' next runs take tickets for them too.
        """

    def outdate(self) -> None:
        """Forget the entities that were read when the functions' turns began: a call inside may change these.

        So a function's first read of such an entity queries the database.
        """

    def unbar(self, operation_id: UUID) -> bool:
        """Remove the mark of operation ``operation_id`` if one of these functions set it; return whether it did.

        A call inside of the function needs the marked scope.
        """


running: Final[ContextVar[Lender | None]] = ContextVar("metastore_running", default=None)
"""The place of the innermost function that runs, or has begun this task and ended."""


def give_way(backend: Reads, ids: Iterable[int] = ()) -> None:
    """Release the tickets and marks of the functions around a call, before the call waits for others."""
    around = running.get()
    if around is not None:
        around.give_way(backend, ids)


class Loan:
    """The entities on which a function around a call has its turn. The call's attempts use the function's ticket.

    If it were announced or in line, the call would wait for that function, which waits for the call.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: frozenset[int] = frozenset()

    def may_add(self, ids: Iterable[int], ends: float) -> bool:
        """Return whether one function around this call has its turn on these entities, too, and lends its ticket."""
        wanted, around = self._ids.union(ids), running.get()
        lends = around is not None and around.loan(self._session, wanted, ends) is not None
        self._ids = wanted if lends else frozenset()
        return lends

    def taken(self, ends: float) -> AbstractContextManager[int | None]:
        """Return a block for one attempt; it yields the ticket, or None."""
        around = running.get() if self._ids else None
        loan = None if around is None else around.loan(self._session, self._ids, ends)
        return nullcontext() if loan is None else loan

    def end(self) -> None:
        """Note that another operation has removed the ticket."""
        self._ids = frozenset()


class Watch:
    """A watch on the head of a line. It removes a ticket that does not move, because its owner died or sleeps."""

    def __init__(self, session: Session, ids: Sequence[int]) -> None:
        self._session, self._ids = session, ids
        self._seen: tuple[int | None, int | None] = (None, None)
        self._since = session.clock.monotonic()

    def wait(self, line: Line, ends: float, name: int | UUID) -> None:
        """Wait for a part of the earlier turns. By the waiter's own clock, remove a head that does not move.

        ``name``: the ticket, or the operation, that waits.

        Raises Conflict when the call's time is over.
        """
        clock = self._session.clock
        now = clock.monotonic()
        if now >= ends:
            raise Conflict("ticket", "other transactions are in line", 0.0)
        if (line.head, line.moves) != self._seen or line.gap > 0:  # in a gap, no head can move
            self._seen, self._since = (line.head, line.moves), now
        elif line.head is not None and now - self._since > min(max(_PATIENCE, line.patience), _LONGEST_PATIENCE):
            self._session.backend.leave(self._ids, line.head)
            self._since = now
            return
        turns = max(0.5, line.ahead - 0.5) * self._session.hot.turn
        longest = _NEXT_WAIT if line.ahead <= 1 else _LONGEST_WAIT
        wait = min(max(_SHORTEST_WAIT, turns, line.gap), longest, ends - now)
        wait *= clock.uniform(0.75, 1.25)
        # no notice tells when a gap (the others' turn) ends, so wait for one only until the next look
        _rest(self._session, name, wait, wait if line.gap > 0 else min(longest, ends - now))


def _rest(session: Session, name: int | UUID, seconds: float, longest: float) -> None:
    """Wait until the next look, or until a notice names this ticket or operation.

    ``longest``: the longest wait where notices arrive, because a look that finds nothing delays the others.
    """
    notices = session.backend.notices
    if notices is None:
        session.clock.sleep(seconds)
    else:
        notices.wait(name, seconds, max(seconds, longest), session.clock)


class OwnTicket:
    """The place in line of one operation. A forked child takes no part in it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._process = process_id()
        self.ids: tuple[int, ...] = ()
        self.number: int | None = None
        """None: the operation is in no line."""
        self.seen: dict[int, Pending] = {}
        """The entity and its intents at the instant that began the turn; {}: the ticket is for several entities."""
        self._began = 0.0
        self._ahead = 0
        """How many tickets were before it."""
        self._next = True
        """Whether this operation's turn may be next."""
        self._patience = _PATIENCE
        """How long others wait for a move when this ticket is the head (seconds)."""

    def take(self, ids: Iterable[int], ends: float, run: float = 0.0) -> None:
        """Wait in line for these entities until it is this operation's turn.

        ``run``: how long the turn will be (seconds).

        Raises Conflict when the time is over; BackendUnavailable.
        """
        wanted = tuple(sorted(set(ids)))
        if wanted != self.ids:
            # an operation that needs more entities first gives up its tickets: each wait must be for an older ticket
            self.leave()
        self.ids, self._began = wanted, 0.0
        watch, clock = Watch(self._session, wanted), self._session.clock
        queued, self._ahead, self._next = clock.monotonic(), 0, True
        self._patience = min(max(_PATIENCE, 4 * run), _LONGEST_PATIENCE)
        while not self._has_turn(watch, ends):
            pass
        self._began = clock.monotonic()
        if self._ahead:
            self._session.hot.took_turn((self._began - queued) / self._ahead)

    def _has_turn(self, watch: Watch, ends: float) -> bool:
        if self.number is None:
            self.number = self._session.backend.queue(self.ids, self._patience)
        line = self._look(self.number)
        if not line.held:  # the ticket was removed: queue again
            # others may wait longer for this ticket: it may be first at one entity, and behind a long turn at another
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            self.leave()
            return False
        if line.head is None and line.gap <= 0:
            return True
        self._ahead, self._next = max(self._ahead, line.ahead), line.ahead <= 1
        watch.wait(line, ends, self.number)
        return False

    def _look(self, number: int) -> Line:
        """Look for older tickets. If there is none, the same message may also return the entity."""
        backend = self._session.backend
        if not self._next or len(self.ids) > 1:
            self.seen = {}
            return backend.line(self.ids, number)
        (entity_id,) = self.ids
        seen = backend.pending(entity_id, None, BATCH, number)
        self.seen = {entity_id: seen}
        return seen.line

    @property
    def has_turn(self) -> bool:
        """Whether the operation is in line and waits for no other ticket."""
        return self.number is not None and self._began > 0

    @property
    def is_short(self) -> bool:
        """Whether the turn was so short that the commit can end it without a gap."""
        return self._session.clock.monotonic() - self._began <= _LONG

    def passed(self) -> None:
        """Note that the commit removed the ticket."""
        if not self._ahead:
            self._session.hot.took_turn(self._session.clock.monotonic() - self._began)
        self.number = None

    @property
    def alone(self) -> bool:
        """Whether no ticket was before it."""
        return self._ahead == 0

    def leave(self) -> None:
        """Leave the line, with a gap for others after a long turn. If that fails, a waiter removes the ticket."""
        number, self.number = self.number, None
        if number is None or self._process != process_id():
            return
        took = self._session.clock.monotonic() - self._began if self._began else 0.0
        with suppress(MetastoreError):
            self._session.backend.leave(self.ids, number, took if took > _LONG else 0.0)
        self._began = 0.0


Seen = Mapping[int, Pending]
"""The entities and intents that one snapshot showed, by the entity's id."""


def carrying(session: Session, commit: Commit, seen: Seen | None = None) -> Commit:
    """Return the commit with the visible intents on the entities that it writes, applied after its own writes.

    No answer to them was sent yet, so this is a valid serial order. Entities that the commit itself renames, moves or
    drops, and those below, carry no intents, because their paths may lead elsewhere afterwards. The commit ignores the
    intents there: their owners apply them or find them moved. ``seen``: the entities that one snapshot has shown.
    """
    updates = {w.id: w for w in commit.writes if isinstance(w, Update)}
    moved = {w.id for w in commit.writes if isinstance(w, Update) and w.scope_version is not None}
    moved |= {guard.id for guard in commit.guards if guard.bump}
    backend, known, carries = session.backend, seen or {}, list[Help]()
    for entity_id, last in updates.items():
        if entity_id in moved:
            carries.append(_nothing(last))
            continue
        there = known.get(entity_id) or backend.pending(entity_id, None, BATCH)
        carried = _carried(backend, there, commit, last, moved)
        carries += [] if carried is None else [carried]
    return replace(commit, carries=tuple(carries))


def _carried(backend: Intents, seen: Pending, commit: Commit, last: Update, moved: AbstractSet[int]) -> Help | None:
    first = next(w for w in commit.writes if isinstance(w, Update) and w.id == last.id)
    if seen.known is None or seen.known.record.version != first.version:
        return None  # carry nothing, because the commit's compare-and-swap will fail
    record, scopes = seen.known.record, scopes_of(backend, seen)
    if not seen.intents or not moved.isdisjoint((*[node.id for node in record.chain], *scopes)):
        return _nothing(last)
    doc = next((w.doc for w in reversed(commit.writes) if isinstance(w, Update) and w.id == last.id and w.doc), None)
    after = record._replace(
        version=last.version + 1,
        doc=record.doc if doc is None else doc,
        modified_by=commit.principal,
        modified_at=OF_THE_COMMIT,
    )
    planned = plan(seen._replace(known=seen.known._replace(record=after)), None, BatchSize(), scopes)
    return _nothing(last) if planned is None else planned.help


def _nothing(last: Update) -> Help:
    """Return the help of a commit that ignores the intents on an entity."""
    return Help((), last.id, last.version + 1, last.event.path_after or "", ())


def scopes_of(backend: Intents, seen: Pending) -> Mapping[int, int]:
    """Return the present scope versions of the intents' evidence; without evidence, send no query."""
    wanted = {i for intent in seen.intents if intent.fences is not None for i in evidence_of(intent)}
    return backend.scopes(sorted(wanted)) if wanted else {}


def sent(backend: Reads, commit: Commit) -> CommitOutcome:
    """Send a commit. If the database refuses a value, send it again without the intents that it carries.

    That value may belong to an intent of another operation, whose owner then deals with it.
    """
    try:
        return backend.commit(commit)
    except InvalidArgument:
        if not any(one.resolutions for one in commit.carries):
            raise
    return backend.commit(replace(commit, carries=tuple([replace(one, resolutions=()) for one in commit.carries])))
