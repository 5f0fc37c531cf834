"""An operation's row: a lost answer, a claim, a repeat, an id that is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from metastore.errors import BackendUnavailable, InvalidArgument, OperationIdReused, OutcomeUnknown
from metastore.operation.begun import begin
from metastore.operation.record import OperationRow
from metastore.operation.request import Call
from metastore.port.commit import Conflicted, Unknown
from metastore.port.intents import Entry
from metastore.retry.runner import Conflict
from metastore.store import Store
from tests.contract.ground import commit_of, update
from tests.operation.ground import PATH, StillClock, request, session_of, store_with


@pytest.fixture
def store() -> Store:
    return store_with(StillClock())


def row_of(store: Store, operation_id: UUID | None = None, **fields: Any) -> OperationRow:
    session, wanted, call = session_of(store), request(**fields), Call(operation_id=operation_id)
    return OperationRow(session, wanted, call, begin(session, wanted, call))


def new_id(store: Store) -> UUID:
    return session_of(store).clock.operation_id()


def intent(store: Store, row: OperationRow) -> Entry:
    return Entry(row.id, "pending", "me", store.topics.load(PATH).id, "topic", PATH, "[]", 1, 30.0, caller=row.caller)


def test_a_lost_commit_is_made_impossible(store: Store) -> None:
    row = row_of(store)
    with pytest.raises(Conflict) as lost:
        row.lost(Unknown("cut"))
    assert (lost.value.cause, lost.value.wait, row.claim, row.look) == ("lost", None, 1, False)
    late = session_of(store).backend.commit(commit_of(update(store.topics.load(PATH)), operation_id=row.id))
    assert isinstance(late, Conflicted)
    assert late.cause == "operation"


def test_a_lost_answer_of_what_was_applied_is_found(store: Store) -> None:
    row = row_of(store)
    row.keep("unchanged", "1")
    with pytest.raises(Conflict) as lost:
        row.lost(Unknown("cut"))
    assert (lost.value.wait, row.look) == (0.0, True)
    (step,) = row.read()
    assert (step.action, step.result, row.look) == ("unchanged", "1", False)


def test_a_pending_row_says_on_what(store: Store) -> None:
    row = row_of(store)
    row.write_down(intent(store, row))
    with pytest.raises(Conflict, match="pending"):
        row.read()
    assert row.pending_on == store.topics.load(PATH).id


def test_a_withdrawn_row_is_claimed(store: Store) -> None:
    row = row_of(store)
    row.write_down(intent(store, row))
    assert session_of(store).backend.cancel(row.id)
    with pytest.raises(Conflict, match="taken up again"):
        row.read()
    assert (row.withdrawn, row.claim, row.pending_on, row.look) == (True, 2, None, False)


def test_a_row_that_is_gone_is_no_failure(store: Store) -> None:
    with pytest.raises(OutcomeUnknown):
        row_of(store).read()
    repeat = row_of(store, new_id(store))
    repeat.lease_lost()  # it may be a repeat of what was applied, or a first call
    with pytest.raises(Conflict, match="the operation has no record"):
        repeat.read()
    assert not repeat.look


def test_a_lost_lease_leaves_nothing_to_look_at_without_an_id_of_the_callers(store: Store) -> None:
    row = row_of(store)
    row.lease_lost()
    assert not row.look


@pytest.mark.parametrize(("claim", "wait"), [(0, 0.0), (1, 0.0), (2, None)])
def test_two_calls_with_one_id_do_not_meet_for_ever(store: Store, claim: int, wait: float | None) -> None:
    row = row_of(store)
    row.claim = claim
    with pytest.raises(Conflict) as known:
        row.look_next("claim")
    assert (known.value.cause, known.value.wait, row.look) == ("claim", wait, True)


def test_an_id_that_gc_may_have_forgotten_is_refused(store: Store) -> None:
    unknown, known = row_of(store, new_id(store)), row_of(store, new_id(store))
    with pytest.raises(InvalidArgument, match="cannot be distinguished"):
        unknown.look_next("stale_id")
    known.keep("unchanged", "1")
    with pytest.raises(Conflict) as conflict:
        known.look_next("stale_id")
    assert (conflict.value.cause, known.look) == ("operation", True)


def test_a_repeat_has_the_same_arguments(store: Store) -> None:
    operation_id = new_id(store)
    row_of(store, operation_id, arguments=lambda: ["topic", 1]).keep("unchanged", "1")
    (same,) = row_of(store, operation_id, arguments=lambda: ["topic", 1]).read()
    assert same.result == "1"
    with pytest.raises(OperationIdReused):
        row_of(store, operation_id, arguments=lambda: ["topic", 2]).read()


def test_a_row_whose_owner_cannot_be_asked_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is decided, so no error may say that the call was not applied: see ``give_up``."""
    made = store.topics.load(PATH)
    (step,) = session_of(store).backend.history(made.id, 0, 1)
    of_a_row = step._replace(kind="statistic", owner_id=made.id, digest=None)
    row = row_of(store, step.operation_id, verb="statistic", arguments=lambda: ["topic", 1])
    row.look = True

    def away(*_: object) -> Any:
        raise BackendUnavailable("the server is starting")

    backend = session_of(store).backend
    monkeypatch.setattr(backend, "steps", lambda _: [of_a_row])
    with monkeypatch.context() as patch:
        patch.setattr(backend, "by_id", away)
        with pytest.raises(BackendUnavailable):
            row.read()
    assert row.look
    row.read()
    assert not row.look


def test_a_row_is_written_once(store: Store) -> None:
    row = row_of(store)
    row.keep("unchanged", "1")
    with pytest.raises(Conflict) as known:
        row.keep("unchanged", "1")
    assert (known.value.cause, row.look) == ("operation", True)
