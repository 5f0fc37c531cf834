"""A place in line: who waits measures how long a turn takes, and leaves others theirs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from metastore.operation.marks import OwnMark
from metastore.operation.session import Session
from metastore.operation.tickets import OwnTicket
from metastore.port.commit import Commit
from metastore.port.conditions import Expect
from metastore.retry.runner import Conflict
from metastore.store import Store
from metastore.transaction.line import InLine
from metastore.transaction.turns import _Handed, door_at
from tests.operation.ground import PATH, StillClock, session_of, store_with

TURN = 0.05


class _Ending(StillClock):
    """A clock on which the turn of ``first`` ends after a time."""

    first: OwnTicket | None = None
    ends = 0.0
    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    """What others do while somebody waits."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()
        if self.first is not None and self.monotonic() >= self.ends:
            self.first.leave()
            self.first = None


@pytest.fixture
def clock() -> _Ending:
    return _Ending()


@pytest.fixture
def store(clock: _Ending) -> Store:
    return store_with(clock)


def test_a_turn_of_others_is_measured(store: Store, clock: _Ending) -> None:
    session, entity_id = session_of(store), store.topics.load(PATH).id
    first, second, ends = OwnTicket(session), OwnTicket(session), clock.monotonic() + 30
    before = session.hot.turn
    first.take([entity_id], ends)
    assert first.alone
    assert session.hot.turn == before, "nobody was before it: that tells nothing"
    clock.first, clock.ends = first, clock.monotonic() + TURN
    began = clock.monotonic()
    second.take([entity_id], ends)
    waited = clock.monotonic() - began
    assert waited >= TURN
    assert not second.alone
    assert session.hot.turn == pytest.approx((before + waited) / 2)
    measured = session.hot.turn
    second.passed()
    assert session.hot.turn == measured, "its own turn is measured by those that waited for it"


def test_a_turn_without_others_is_measured_by_itself(store: Store, clock: _Ending) -> None:
    session, entity_id = session_of(store), store.topics.load(PATH).id
    ticket, before = OwnTicket(session), session.hot.turn
    ticket.take([entity_id], clock.monotonic() + 30)
    clock.sleep(TURN)
    assert not ticket.is_short, "others have an equal time after it"
    ticket.passed()
    assert session.hot.turn == pytest.approx(
        (before + TURN) / 2, rel=0.5
    )  # the clock of the test goes on by itself, too


def test_no_head_is_taken_for_dead_in_the_turn_of_the_others(store: Store, clock: _Ending) -> None:
    """It cannot move then. Afterwards one that does not move is dead."""
    session, entity_id = session_of(store), store.topics.load(PATH).id
    first, third = OwnTicket(session), OwnTicket(session)
    first.take([entity_id], clock.monotonic() + 30)
    head = session.backend.queue([entity_id], 0.0)
    clock.sleep(2.0)
    first.leave()  # the others have their turn for as long as that took
    with pytest.raises(Conflict):
        third.take([entity_id], clock.monotonic() + 1.8)
    assert session.backend.line([entity_id], head).held
    third.take([entity_id], clock.monotonic() + 30)
    assert not session.backend.line([entity_id], head).held


def test_who_was_taken_for_dead_is_waited_for_longer(store: Store, clock: _Ending) -> None:
    """It may have waited for a long turn at one entity while it was the head at another: else that never ends."""
    session, entity_id = session_of(store), store.topics.load(PATH).id
    backend: Any = session.backend
    patience, queue = list[float](), backend.queue

    def noted(ids: Any, seconds: float) -> int:
        patience.append(seconds)
        return int(queue(ids, seconds))

    backend.queue = noted
    OwnTicket(session).take([entity_id], clock.monotonic() + 30)
    ticket = OwnTicket(session)
    clock.meanwhile = lambda: backend.leave([entity_id], ticket.number)
    with pytest.raises(Conflict):
        ticket.take([entity_id], clock.monotonic() + 0.2)
    assert patience[1:8] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def _lost_on(line: InLine, store: Store, *entity_ids: int) -> None:
    """Let a run lose on entities that it has read."""
    reads = tuple(Expect(one, 1) for one in entity_ids)
    assert line.lost(Commit(session_of(store).clock.operation_id(), "me", reads=reads), "read", {})


def _enter(line: InLine, session: Session) -> None:
    line.enter(OwnMark(session.backend, session.clock.operation_id()))


def test_a_run_that_lost_takes_a_ticket_for_the_next_one(store: Store, clock: _Ending) -> None:
    session, entity_id = session_of(store), store.topics.load(PATH).id
    line = InLine(session, clock.monotonic() + 30)
    _enter(line, session)
    assert line.ticket is None, "the first run is optimistic"
    _lost_on(line, store, entity_id)
    _enter(line, session)
    assert line.ticket is not None
    assert line.ticket.ids == (entity_id,)  # type: ignore[unreachable]
    line.leave()
    assert line.ticket is None


def test_who_waits_for_more_holds_nothing(store: Store, clock: _Ending) -> None:
    """Else two threads, each in one door, would wait for each other at the other one."""
    session = session_of(store)
    one, other = store.topics.load(PATH).id, store.topics.create("lake.c.s.other").id
    line = InLine(session, clock.monotonic() + 30)
    _lost_on(line, store, one)
    _enter(line, session)
    _lost_on(line, store, other)
    _enter(line, session)
    assert line.ticket is not None
    assert line.ticket.ids == tuple(sorted((one, other)))
    door = door_at(session, (one,))
    term = door.enter(clock.monotonic(), clock.runner())
    assert term is not None, "no thread is in it any more"
    door.leave(term, None, clock.runner())
    line.leave()


@pytest.mark.parametrize("stale", [True, False], ids=["of the one before", "its own"])
def test_an_interrupt_of_the_message_that_removes_a_ticket_leaves_the_door_open(
    store: Store, clock: _Ending, stale: bool
) -> None:
    """Else all that come after it wait until their patience with it is over, which is seconds."""
    session, entity_id = session_of(store), store.topics.load(PATH).id
    backend: Any = session.backend
    door = door_at(session, (entity_id,))
    line = InLine(session, clock.monotonic() + 30)
    _lost_on(line, store, entity_id)
    if stale:
        left = OwnTicket(session)
        left.take([entity_id], clock.monotonic() + 30)
        door._handed = _Handed(left, clock.monotonic() - 1.0, os.getpid())

    def interrupted(*_: object) -> None:
        del backend.leave
        raise KeyboardInterrupt

    def run() -> None:
        try:
            _enter(line, session)
        finally:
            line.leave()

    backend.leave = interrupted
    with pytest.raises(KeyboardInterrupt):
        run()
    assert "leave" not in vars(backend)
    term = door._lane.lead()
    assert term is not None
    door._lane.leave(term)
    assert door._inside == []


def test_a_function_whose_mark_is_gone_has_none_to_give_up(store: Store, clock: _Ending) -> None:
    """A call inside of it would look again at once, as often as it can, until the mark that it met ends."""
    session, schema = session_of(store), store.schemas.load(PATH.rpartition(".")[0]).id
    mark, line = OwnMark(session.backend, clock.operation_id()), InLine(session, clock.monotonic() + 30)
    line.enter(mark)
    mark.put(schema)
    assert line.unbar(mark.id)
    assert not line.unbar(mark.id)
