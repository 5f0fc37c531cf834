"""A transaction under an id of its caller: the outcome is found by it, and the id commits once."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

import metastore as ms
from metastore.port.commit import Commit, Unknown
from metastore.port.records import Step


def test_a_transaction_commits_once_under_its_id(store: ms.Store) -> None:
    store.metalakes.create("lake")
    operation = ms.key("client's key")
    with store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "1"))
    assert store.outcome(operation).state == "committed"
    with pytest.raises(ms.OperationIdReused), store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "2"))
    assert store.metalakes.load("lake").properties["k"] == "1"


def test_a_refused_transaction_leaves_its_id_free(store: ms.Store) -> None:
    store.metalakes.create("lake")
    operation = ms.new_operation_id()
    refused = store.transaction(operation_id=operation)
    refused.__enter__()
    refused.metalakes.alter("lake", ms.SetProperty("k", "2"))
    store.metalakes.alter("lake", ms.SetProperty("k", "1"))
    with pytest.raises(ms.VersionConflict):
        refused.__exit__(None, None, None)
    assert store.outcome(operation).state == "unknown"
    with store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "3"))
    assert store.metalakes.load("lake").properties["k"] == "3"


def test_a_transaction_that_was_withdrawn_is_taken_up_again(store: ms.Store) -> None:
    """After a lost answer or an interrupt, its row says that it was not applied: the same call applies it, once."""
    store.metalakes.create("lake")
    operation = ms.key("client's key")
    assert store._session.backend.forbid(operation, 60.0) == 1  # as a call does whose answer is lost
    assert store.outcome(operation).state == "cancelled"
    with store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "1"))
    assert store.outcome(operation).state == "committed"
    with pytest.raises(ms.OperationIdReused), store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "2"))
    assert store.metalakes.load("lake").properties["k"] == "1"


def test_an_id_under_which_nothing_was_written_is_known(store: ms.Store) -> None:
    """Otherwise a repeat would write over what others did meanwhile."""
    store.metalakes.create("lake", comment="one")
    operation = ms.new_operation_id()
    with store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetComment("one"))
    assert store.outcome(operation) == ms.Outcome("committed")
    store.metalakes.alter("lake", ms.SetComment("two"))
    with pytest.raises(ms.OperationIdReused), store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetComment("one"))
    assert store.metalakes.load("lake").comment == "two"
    assert store.verify() == []


def test_an_id_that_gc_may_have_forgotten_is_refused(store: ms.Store) -> None:
    """As by a plain call: the transaction may have been applied before."""
    store.metalakes.create("lake")
    operation = ms.new_operation_id()
    with store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "1"))
    store.metalakes.alter("lake", ms.RemoveProperty("k"))
    store.gc(retention=timedelta(0), keep_versions=1)
    with pytest.raises(ms.OperationIdRefused), store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "1"))
    assert "k" not in store.metalakes.load("lake").properties


def test_a_repeat_whose_answer_is_lost_does_not_count_as_applied(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the state that its block saw counts as committed: an alter of it would write over that of others."""
    store.metalakes.create("lake")
    operation = ms.new_operation_id()
    with store.transaction(operation_id=operation) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "first"))
    backend = store._session.backend
    commit = backend.commit

    def cut(one: Commit) -> Unknown:
        commit(one)
        return Unknown("cut")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "commit", cut)
        with pytest.raises(ms.OperationIdReused), store.transaction(operation_id=operation) as tx:
            refused = tx.metalakes.alter("lake", ms.SetProperty("k", "never"))
    store.metalakes.alter("lake", ms.SetProperty("k", "other"))
    assert store.metalakes.alter(refused, ms.SetProperty("j", "1")).properties == {"k": "other", "j": "1"}


def test_a_first_call_whose_answer_is_lost_is_applied(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.metalakes.create("lake")
    backend, operation = store._session.backend, ms.new_operation_id()
    commit = backend.commit

    def cut(one: Commit) -> Unknown:
        commit(one)
        return Unknown("cut")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "commit", cut)
        with store.transaction(operation_id=operation) as tx:
            tx.metalakes.alter("lake", ms.SetProperty("k", "first"))
    assert store.metalakes.load("lake").properties == {"k": "first"}


def test_a_close_after_a_lost_answer_leaves_the_outcome_unknown(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.metalakes.create("lake")
    backend = store._session.backend
    commit, confirm = backend.commit, backend.confirm

    def cut(one: Commit) -> Unknown:
        commit(one)
        return Unknown("cut")

    def closed_after(operation: UUID) -> list[Step]:
        steps = confirm(operation)
        store.close()
        return steps

    monkeypatch.setattr(backend, "commit", cut)
    monkeypatch.setattr(backend, "confirm", closed_after)
    with pytest.raises(ms.OutcomeUnknown), store.transaction(operation_id=ms.new_operation_id()) as tx:
        tx.metalakes.alter("lake", ms.SetProperty("k", "first"))


def test_a_user_takes_up_a_call_that_was_withdrawn(store: ms.Store) -> None:
    """Its row has neither arguments nor a principal."""
    store.metalakes.create("lake")
    store.owners.set("lake", store.users.create("lake.ann"))
    ann, call, transaction = store.as_user("ann"), ms.new_operation_id(), ms.new_operation_id()
    for operation in (call, transaction):
        assert store._session.backend.forbid(operation, 60.0) == 1
    with ann.transaction(operation_id=transaction):
        pass
    assert ann.metalakes.alter("lake", ms.SetComment("new"), operation_id=call).comment == "new"
    assert {store.outcome(operation).state for operation in (call, transaction)} == {"committed"}
