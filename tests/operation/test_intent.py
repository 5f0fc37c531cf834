"""An operation as an intent: announced, helped, decided by another process, withdrawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import metastore as ms
from metastore.errors import DeadlineExceeded
from metastore.operation.begun import begin
from metastore.operation.helping import BATCH, BatchSize, plan
from metastore.operation.intent import Intent, help_others
from metastore.operation.marks import OwnMark
from metastore.operation.record import OperationRow
from metastore.operation.request import Call
from metastore.port.records import Record, Step
from metastore.retry.runner import Conflict
from metastore.store import Store
from tests.operation.ground import PATH, StillClock, merge_of, request, session_of, store_with


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(clock: StillClock) -> Store:
    return store_with(clock)


class One:
    """One operation, as far as it is an intent."""

    def __init__(self, store: Store, comment: str) -> None:
        session, self._store = session_of(store), store
        self.row = OperationRow(session, request(), Call(), begin(session, request(), Call()))
        self.mark = OwnMark(session.backend, self.row.id, exclusive=False)
        self.intent = Intent(session, self.row, self.mark, lambda: "alter it")
        self.merge = self.intent.merge = merge_of(store, comment)
        assert self.merge.entity_id is not None
        self.on = self.merge.entity_id

    def announced(self) -> One:
        self.intent.announce(self.on)
        session_of(self._store).clock.sleep(0.001)  # the next one is younger
        return self

    def help(self) -> Record | Step:
        return self.intent.help(self.on)


def test_it_is_written_down_and_then_applied(store: Store) -> None:
    one = One(store, "mine").announced()
    assert store.outcome(one.row.id).state == "pending"
    record = one.help()
    assert isinstance(record, Record)
    assert record.version == 2
    assert one.row.pending_on is None
    topic = store.topics.load(PATH)
    assert (topic.comment, topic.version) == ("mine", 2)
    assert topic.modified_at == store.outcome(one.row.id).result.modified_at


def test_one_commit_applies_all_of_them_oldest_first(store: Store) -> None:
    first, second = One(store, "first").announced(), One(store, "second").announced()
    record = first.help()
    assert isinstance(record, Record)
    assert record.version == 2
    decided = second.help()
    assert isinstance(decided, Step)
    assert (decided.action, decided.version) == ("alter", 3)
    assert second.row.pending_on == second.on  # another operation's commit did it: the operation counts that
    assert store.topics.load(PATH).comment == "second"


@pytest.mark.parametrize(("most", "applied"), [(2, 2), (BATCH, 5)])
def test_a_batch_has_a_bound(store: Store, most: int, applied: int) -> None:
    """The bound of attempts counts on it: an own intent that is younger waits, or comes along beyond it."""
    others = [One(store, f"{n}").announced() for n in range(5)]
    session, batch = session_of(store), BatchSize()
    batch.most = most
    seen = session.backend.pending(others[0].on, others[0].row.id, BATCH)
    planned = plan(seen, others[0].row.id, batch)
    assert planned is not None
    assert [one.operation_id for one in planned.help.resolutions] == [one.row.id for one in others[:applied]]


def test_what_changes_nothing_is_its_own_row(store: Store) -> None:
    store.topics.alter(PATH, ms.SetComment("same"))
    one = One(store, "same").announced()
    decided = one.help()
    assert isinstance(decided, Step)
    assert (decided.action, one.row.pending_on) == ("unchanged", None)


def test_an_intent_whose_entity_moved_is_claimed(store: Store) -> None:
    one = One(store, "mine").announced()
    store.topics.rename(PATH, "u")
    with pytest.raises(Conflict, match="taken up again"):
        one.help()
    assert (one.row.withdrawn, one.row.claim, one.row.pending_on) == (True, 2, None)


def test_an_intent_expires_with_its_call(store: Store, clock: StillClock) -> None:
    one = One(store, "mine").announced()
    clock.sleep(30.5)
    with pytest.raises(Conflict, match="others came first"):
        one.help()
    assert one.row.look  # the commit noted that it is expired
    with pytest.raises(DeadlineExceeded):
        one.help()
    assert one.row.pending_on is None
    assert store.topics.load(PATH).comment is None


def test_it_steps_aside_for_a_mark(store: Store) -> None:
    one, exclusive = One(store, "mine").announced(), session_of(store).clock.operation_id()
    other = OwnMark(session_of(store).backend, exclusive)
    other.put(store.schemas.load("lake.c.s").id)
    with pytest.raises(Conflict) as conflict:
        one.help()
    assert (conflict.value.cause, one.mark.other, one.row.pending_on) == ("marked", exclusive, one.on)


def test_a_lost_compare_and_swap_says_on_what(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, backend = One(store, "mine").announced(), session_of(store).backend
    help_ = backend.help
    monkeypatch.setattr(backend, "help", lambda wanted: help_(replace(wanted, version=7)))
    with pytest.raises(Conflict) as conflict:
        one.help()
    lost = conflict.value
    assert (lost.cause, lost.wait, lost.entity_id, lost.expected) == ("self", 0.0, one.on, 1)


def test_a_hot_entity_is_announced_on_at_once(store: Store) -> None:
    one = One(store, "mine")
    assert one.intent.hot(one.merge) is None
    session_of(store).hot.note(one.on)
    assert one.intent.hot(one.merge) == one.on
    one.row.claim = 1  # what was sent before may not be announced beside
    assert one.intent.hot(one.merge) is None


def test_others_are_helped(store: Store) -> None:
    one = One(store, "mine").announced()
    assert help_others(session_of(store), one.on)
    assert store.topics.load(PATH).comment == "mine"
    assert help_others(session_of(store), one.on)  # there are none


@pytest.mark.parametrize("change", ["Unheard", "DropColumn"], ids=["a new one", "one of another kind until now"])
def test_what_a_newer_program_wrote_is_left(store: Store, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    one, backend = One(store, "mine"), session_of(store).backend
    write_down = backend.write_down
    newer: Any = lambda entry: write_down(  # noqa: E731
        replace(entry, changes=json.dumps([{"change": change, "name": "a"}]))
    )
    monkeypatch.setattr(backend, "write_down", newer)
    one.announced()
    assert not help_others(session_of(store), one.on)
    with pytest.raises(Conflict, match="newer"):
        one.help()
