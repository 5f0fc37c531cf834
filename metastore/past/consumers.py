"""Consumers: named readers of the feed, whose positions the database keeps.

A position moves by compare-and-swap: if two instances of one consumer try at once, only one succeeds. With ``run``, the
position and the consumer's writes are one commit, so each change takes effect exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from metastore.arguments import function, positive_integer, shown
from metastore.errors import EntityNotFound, HistoryGone, InvalidArgument, VersionConflict
from metastore.feed.feed import changes, number_in, position_at, position_of
from metastore.feed.position import check_whole, last
from metastore.kinds.entity import Change
from metastore.names import clean_name
from metastore.operation.request import Call, Fencing
from metastore.operation.session import Session
from metastore.port.past import ConsumerRow
from metastore.port.unreadable import Unreadable
from metastore.port.writes import Advance
from metastore.transaction.transaction import Transaction, run_transaction

__all__ = ["Consumer", "Consumers", "Lag"]


class Lag(NamedTuple):
    """How far a consumer is behind the feed."""

    changes: int
    """The number of unread changes."""
    seconds: float
    """The age of the oldest unread change (seconds); 0: no change is unread."""


class Consumers:
    """The consumers of a database's feed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, name: str, *, start: str = "now") -> Consumer:
        """Return the consumer with this name; if it does not exist, create it at ``start``.

        ``start`` is "now", "beginning" (the oldest position after which gc has kept all changes) or a position. Raises
        InvalidArgument for anything else, HistoryGone for a position that is too old: take "beginning". After
        BackendUnavailable or DeadlineExceeded the consumer may exist: call again.
        """
        check_whole(self._session)
        name, backend = clean_name(name), self._session.backend
        _check_start(start)
        run = backend.origin.run
        row = backend.readers.consumer(name)
        if row is None:
            row = backend.readers.add_consumer(name, _start(self._session, start))
        return Consumer(self._session, name, _place(row, backend.feed_start()[0], run))

    def list(self) -> list[Consumer]:
        """Return all consumers, by name."""
        check_whole(self._session)
        backend = self._session.backend
        run, epoch = backend.origin.run, backend.feed_start()[0]
        return [Consumer(self._session, row.name, _place(row, epoch, run)) for row in backend.readers.consumers()]

    def drop(self, name: str) -> bool:
        """Delete a consumer, so that gc no longer waits for it; return False if it does not exist.

        Raises OutcomeUnknown if it is unknown whether the consumer was deleted.
        """
        check_whole(self._session)
        return self._session.backend.readers.drop_consumer(clean_name(name))


class Consumer:
    """A named reader of the feed. An instance reads from the position that it knows, and a commit moves that position.

    Several threads may call ``run`` of one instance. ``read`` and ``commit`` belong together: each thread that calls
    them needs its own instance.
    """

    def __init__(self, session: Session, name: str, at: _Place) -> None:
        self._session, self.name, self._at = session, name, at

    def __repr__(self) -> str:
        return f"<Consumer {self.name} at {self._at.seq}>"

    @property
    def position(self) -> str:
        """The position up to which this instance knows that the consumer has read. This sends no query."""
        return self._at.position

    def lag(self) -> Lag:
        """Return how far the consumer is behind."""
        backend = self._session.backend
        count, oldest = backend.past.later(self._at.seq)
        return Lag(count, 0.0 if oldest is None else max(0.0, (backend.now() - oldest) / 1e6))

    def read(self, limit: int = 500, unreadable: Unreadable | None = None) -> list[Change]:
        """Return the next changes, at most ``limit``; []: no more at present.

        This does not move the position.

        A damaged row raises UnreadableRow; with ``unreadable`` it is left out, and ``unreadable`` gets the error.
        Raises HistoryGone if gc has deleted unread changes: read the tables again, and ``reset`` the consumer. Raises
        VersionConflict or EntityNotFound, as ``commit`` does, if a server has taken over that lost the position.
        """
        return self._after(self._at, limit, unreadable)

    def _after(self, at: _Place, limit: int, unreadable: Unreadable | None) -> list[Change]:
        limit, backend = positive_integer(limit, "a limit"), self._session.backend
        while True:
            at = self._on_this_server(at)
            try:
                found = list(islice(changes(backend, self._session.clock, at.position, limit, unreadable), limit))
            except (HistoryGone, InvalidArgument):  # the error counts only if no other server has answered meanwhile
                if backend.origin.run == at.run:
                    raise
            else:
                if backend.origin.run == at.run:  # otherwise a server that lost the position may have given some rows
                    return found

    def _on_this_server(self, at: _Place) -> _Place:
        """Return the same place as a position on the present server.

        Raises VersionConflict if the consumer is elsewhere on that server, EntityNotFound if it does not exist there.
        """
        backend = self._session.backend
        run = backend.origin.run
        if run == at.run:
            return at
        row, epoch = backend.readers.consumer(self.name), backend.feed_start()[0]
        if row is None or not (here := _place(row, epoch, run)).is_at(at):
            raise self._moved(at.seq)
        if self._at is at:
            self._at = here
        return here

    def commit(self, position: str) -> None:
        """Move to a position: the next ``read`` returns the changes after it. An earlier position returns some again.

        Raises VersionConflict if another instance has moved the consumer, or if another server has taken over that may
        lack changes that were read: discard what this instance has read. It can then read on from the consumer's
        position. Raises EntityNotFound if the consumer was dropped (create it again with ``get``), HistoryGone (see
        ``read``), InvalidArgument for a wrong position.
        """
        try:
            to = _readable(self._session, position)
        except HistoryGone:
            if self._session.backend.origin.run == self._at.run:
                raise
            raise self._lost() from None  # the consumer's place in the database is still the old one
        self._move(self._at.moved(to, position))

    def reset(self, start: str) -> None:
        """Move to "now", "beginning" (see ``Consumers.get``) or a position, also after HistoryGone.

        Raises the same errors as ``commit``.
        """
        _check_start(start)
        to = _start(self._session, start)
        self._move(self._at.moved(to, position_at(self._session.backend, to)))

    def _move(self, to: _Place) -> None:
        self._advance(self._at.seq, lambda _: to, Call())

    def _advance(self, seq: int, fn: Callable[[Transaction], _Place], call: Call) -> None:
        """Move from ``seq`` to the place that ``fn`` returns, in one commit with the writes of ``fn``.

        The commit has an operation, so a move without an answer can be settled.
        """

        def effect(tx: Transaction) -> _Place:
            row = self._session.backend.readers.consumer(self.name)
            if row is None or row.seq != seq:
                raise self._moved(seq)
            to = fn(tx)
            tx.advance = Advance(self.name, seq, to.seq)
            return to

        self._at = run_transaction(self._session, effect, call)

    def run(
        self,
        fn: Callable[[Transaction, list[Change]], Any],
        limit: int = 500,
        unreadable: Unreadable | None = None,
        *,
        lease: Fencing | None = None,
    ) -> int:
        """Call ``fn(tx, changes)`` with the next changes; commit its writes and the new position in one commit.

        Return the number of changes; 0: no more at present, and ``fn`` was not called. ``fn`` may run several
        times, as in ``store.run``. The changes that it makes appear in the feed, too. With a ``lease``, only the
        instance that holds it can commit. Raises LeaseLost if the lease is lost (acquire it again), VersionConflict if
        another instance was faster (call again); then nothing of this call is written. Also raises the errors of
        ``read`` and of ``fn``.
        """
        function(fn, "what a consumer runs")
        at = self._at  # a local copy: another thread may move the consumer meanwhile
        batch = self._after(at, limit, unreadable)
        if not batch:
            return 0

        def effect(tx: Transaction) -> _Place:
            to = self._end_of(batch)
            fn(tx, batch)
            return to

        self._advance(at.seq, effect, Call(lease=lease))
        return len(batch)

    def _end_of(self, batch: list[Change]) -> _Place:
        """Return the place of a batch's last change. Raises VersionConflict if the present server may lack it."""
        position = batch[-1].position
        try:
            return self._at.moved(number_in(self._session.backend, position), position)
        except HistoryGone:
            raise self._lost() from None

    def _lost(self) -> VersionConflict:
        message = f"another server has taken over, and may lack what the consumer {self.name} has read; read again"
        return VersionConflict(self.name, None, None, message)

    def _moved(self, was: int) -> EntityNotFound | VersionConflict:
        """Return the error for a consumer that another instance has moved or dropped; note its new position."""
        backend = self._session.backend
        run, epoch = backend.origin.run, backend.feed_start()[0]
        row = backend.readers.consumer(self.name)
        if row is None:
            return EntityNotFound(
                self.name,
                f"the consumer {self.name} was dropped, or another server that took over lost it; create it again",
            )
        self._at = _place(row, epoch, run)
        message = (
            f"the consumer {self.name} is at {row.seq}, and not at {was}: another instance has moved it, or another "
            "server that took over lost its last moves; read again from there"
        )
        return VersionConflict(self.name, was, row.seq, message)


class _Place(NamedTuple):
    """The place of a consumer in the feed."""

    seq: int
    position: str
    run: str | None
    """The server's run in which the position was made; "": unknown. In another run, the text may differ."""

    def moved(self, seq: int, position: str) -> _Place:
        """Return another place. If its position begins like this one's, it has the same run."""
        begins = position.rpartition("-")[0] == self.position.rpartition("-")[0]
        return _Place(seq, position, self.run if begins else "")

    def is_at(self, other: _Place) -> bool:
        """Whether both places are at the same change; gc may have deleted the change itself."""
        here, there = (one.position.rpartition("-")[2] for one in (self, other))
        return here.startswith(there) or there.startswith(here)


def _place(row: ConsumerRow, epoch: str, run: str | None) -> _Place:
    """Return the place in a row; ``run``: the server's run before the row was read."""
    return _Place(row.seq, position_of(epoch, row.seq, row.operation_id), run)


def _check_start(start: object) -> None:
    if not isinstance(start, str) or (start not in ("now", "beginning") and "-" not in start):
        raise InvalidArgument(f"a start is now, beginning or a position, not {shown(start)}")


def _start(session: Session, start: str) -> int:
    """Return the number of the position where a consumer starts. Raises InvalidArgument, HistoryGone."""
    if start == "now":
        return last(session)
    return session.backend.feed_start()[1] if start == "beginning" else _readable(session, start)


def _readable(session: Session, position: str) -> int:
    """Return the number of a position after which the feed can be read. Raises InvalidArgument, HistoryGone."""
    changes(session.backend, session.clock, position, 0)
    seq = number_in(session.backend, position)
    if seq > session.backend.watermark().position:
        raise InvalidArgument(f"the position {position} lies ahead of the feed; use one of this database's feed")
    return seq
