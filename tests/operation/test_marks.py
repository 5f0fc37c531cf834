"""An operation's own mark: put, kept, stepped aside with, gone."""

from __future__ import annotations

from uuid import UUID

import pytest

from metastore.clock import SYSTEM
from metastore.errors import DeadlineExceeded, ScopeFrozen
from metastore.operation.marks import MARK_TTL, OwnMark
from metastore.port.backend import Backend
from tests.operation.ground import PATH, StillClock, session_of, store_with


class Scope:
    """One scope that two operations want for themselves."""

    def __init__(self) -> None:
        self.clock = StillClock()
        store = store_with(self.clock)
        self.backend: Backend = session_of(store).backend
        schema, topic = store.schemas.load("lake.c.s"), store.topics.load(PATH)
        self.id, self.below = schema.id, topic.id
        self.ids = (SYSTEM.operation_id(), SYSTEM.operation_id())
        self.mine, self.other = (OwnMark(self.backend, operation_id) for operation_id in self.ids)

    def marks(self) -> dict[int, UUID | None]:
        return {one.id: one.mark for one in self.backend.marked([self.id, self.below]) if one.mark is not None}


@pytest.fixture
def scope() -> Scope:
    return Scope()


def test_one_marks_a_scope_and_the_other_does_not(scope: Scope) -> None:
    scope.mine.put(scope.id)
    scope.other.put(scope.id)
    assert (scope.mine.held, scope.other.held) == (scope.id, None)
    assert scope.marks() == {scope.id: scope.ids[0]}


def test_removed_once(scope: Scope) -> None:
    scope.mine.put(scope.id)
    scope.mine.remove()
    assert scope.mine.held is None
    assert scope.marks() == {}
    scope.mine.remove()  # there is none


def test_it_keeps_no_mark_while_another_passes(scope: Scope) -> None:
    scope.mine.put(scope.below)
    scope.other.put(scope.id)
    conflict = scope.mine.step_aside([scope.id, scope.below])
    assert (conflict.cause, conflict.wait, scope.mine.held) == ("marked", None, None)
    assert str(scope.ids[1]) in conflict.detail
    assert scope.marks() == {scope.id: scope.ids[1]}
    blamed = scope.mine.blame(DeadlineExceeded("too late"))
    assert isinstance(blamed, ScopeFrozen)
    assert blamed.operation == scope.ids[1]


def test_a_freeze_keeps_its_mark(scope: Scope) -> None:
    scope.mine.put(scope.below)
    scope.other.put(scope.id)
    assert scope.mine.step_aside([scope.id, scope.below], keep=True).cause == "marked"
    assert scope.mine.held == scope.below
    assert scope.marks() == {scope.below: scope.ids[0], scope.id: scope.ids[1]}


def test_a_mark_that_landed_late_is_removed(scope: Scope) -> None:
    scope.mine.put(scope.below)
    scope.mine.held = None  # the answer was lost, and the operation went on without
    scope.mine.step_aside([scope.id, scope.below], keep=True)
    assert scope.marks() == {}


def test_a_dead_operations_mark_is_cleared(scope: Scope) -> None:
    scope.other.put(scope.id)
    scope.clock.sleep(MARK_TTL + 0.1)
    scope.mine.step_aside([scope.id])
    assert scope.marks() == {}
    assert not scope.mine.is_gone()  # it had none
    assert scope.other.is_gone()
    assert scope.other.held is None


def test_a_mark_that_is_there_is_not_gone(scope: Scope) -> None:
    scope.mine.put(scope.id)
    assert not scope.mine.is_gone()
    assert scope.mine.held == scope.id


def test_an_exclusive_operation_waits_for_the_others_turn_to_end(scope: Scope) -> None:
    scope.other.put(scope.id)
    scope.clock.sleep(0.2)
    scope.other.remove()
    assert scope.mine.step_aside([scope.id]).wait == pytest.approx(0.2)
    writer = OwnMark(scope.backend, scope.ids[0], exclusive=False)
    assert writer.step_aside([scope.id]).wait is None  # it is the writer's turn


def test_nothing_is_in_the_way_any_more(scope: Scope) -> None:
    conflict = scope.mine.step_aside([scope.id], cause="ancestor")
    assert (conflict.cause, conflict.wait) == ("ancestor", None)
    error = DeadlineExceeded("too late")
    assert scope.mine.blame(error) is error
