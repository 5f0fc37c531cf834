"""What every store promises when gc collects what was written down during a call: nothing is applied twice.

With a retention below the life of a call, what became of it may be gone before the call looks. It is told that nobody
knows (OutcomeUnknown), instead of sending its change again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

import metastore as ms
from metastore.port.batches import Batch, Written
from metastore.port.commit import Commit, CommitOutcome, Conflicted, Unknown
from metastore.transaction.transaction import Transaction
from tests.combine.gate import full_operations
from tests.contract.ground import Ground, insert
from tests.contract.intents import announce, committed, new_id

TWO = "m.c.two"
MINE, AFTER = ms.SetComment("mine"), ms.SetComment("after")
NOW = timedelta(0)


class _Meanwhile:
    """A backend that does something else before the first call of each of some methods."""

    def __init__(self, backend: Any, before: dict[str, Callable[[], object]], lose: bool | None) -> None:
        self._backend, self._before, self._lose = backend, before, lose

    def in_one_go(self, work: Callable[[], Any], *, for_many: bool = False) -> Any:
        """Work in the caller's task: what the test does in between may call the store, whose only thread is free."""
        return work()

    def __getattr__(self, name: str) -> Any:
        if name in self._before:
            self._before.pop(name)()
        return getattr(self._backend, name)

    def commit(self, commit: Commit) -> CommitOutcome:
        if "commit" in self._before:
            self._before.pop("commit")()
        lose, self._lose = self._lose, None
        if lose is None:
            return self._backend.commit(commit)
        if lose:
            committed(self._backend.commit(commit))
        return Unknown("the wire was cut")

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted | Unknown:
        """Lose the answer of a batch, as of a commit."""
        lose, self._lose = self._lose, None
        if lose is None:
            return cast(Written, self._backend.write_together(batch, patience))
        if lose:
            assert isinstance(self._backend.write_together(batch, patience), Written)
        return Unknown("the wire was cut")


@contextmanager
def meanwhile(ground: Ground, *, lose: bool | None = None, **before: Callable[[], object]) -> Iterator[None]:
    """Let others act before methods of the port; ``lose`` the first commit's answer: it is applied (True), or not."""
    session = ground.store._session
    backend = session.backend

    def undisturbed(act: Callable[[], object]) -> Callable[[], object]:
        def acting() -> None:
            session.backend, ours = backend, session.backend
            try:
                act()
            finally:
                session.backend = ours

        return acting

    session.backend = _Meanwhile(backend, {name: undisturbed(act) for name, act in before.items()}, lose)
    try:
        yield
    finally:
        session.backend = backend


def collected(ground: Ground) -> None:
    """Change the entity, and forget everything before that."""
    ground.store.schemas.alter(TWO, ms.SetProperty("k", "v"))
    ground.store.schemas.alter(TWO, AFTER)
    ground.store.gc(retention=NOW, keep_versions=1)


def check_untouched(ground: Ground) -> None:
    """Check that nothing was applied after what ``collected`` did."""
    found = ground.store.schemas.load(TWO)
    assert found.comment == "after"
    assert ground.store.verify() == []


def test_an_intent_that_others_applied(ground: Ground) -> None:
    def first() -> None:
        ground.store.schemas.alter(TWO, ms.SetProperty("first", "v"))

    def others() -> None:
        collected(ground)

    with (
        full_operations(ground.store),  # a change that loses a batch goes with the next one, and is not announced
        meanwhile(ground, commit=first, pending=others),
        pytest.raises(ms.OutcomeUnknown) as caught,
    ):
        ground.store.schemas.alter(TWO, MINE, deadline=5)
    assert "gc has deleted" in str(caught.value)
    assert ground.store.outcome(caught.value.operation_id).state == "unknown"
    check_untouched(ground)


@pytest.mark.parametrize("really", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_a_lost_answer(ground: Ground, really: bool, given: bool) -> None:
    own = new_id() if given else None
    with meanwhile(ground, lose=really, forbid=lambda: collected(ground)), pytest.raises(ms.OutcomeUnknown):
        ground.store.schemas.alter(TWO, MINE, operation_id=own, deadline=5)
    check_untouched(ground)


@pytest.mark.parametrize("given", [True, False])
def test_what_was_found_decided_is_gone_a_moment_later(ground: Ground, given: bool) -> None:
    own = new_id() if given else None
    with meanwhile(ground, lose=True, confirm=lambda: collected(ground)), pytest.raises(ms.OutcomeUnknown):
        ground.store.schemas.alter(TWO, MINE, operation_id=own, deadline=5)
    check_untouched(ground)


def test_a_transaction(ground: Ground) -> None:
    def write(tx: Transaction) -> None:
        tx.schemas.alter(TWO, MINE)

    with meanwhile(ground, lose=True, forbid=lambda: collected(ground)), pytest.raises(ms.OutcomeUnknown):
        ground.store.run(write)
    check_untouched(ground)


@pytest.mark.parametrize("really", [True, False])
def test_a_retention_above_the_deadline(ground: Ground, really: bool) -> None:
    """Then everything is known: the change is applied, once."""

    def act() -> None:
        ground.store.gc(retention=timedelta(seconds=7), keep_versions=1)

    before = ground.store.schemas.load(TWO).version
    with meanwhile(ground, lose=really, forbid=act):
        assert ground.store.schemas.alter(TWO, MINE, deadline=5).comment == "mine"
    assert ground.store.schemas.load(TWO).version == before + 1


def test_the_port(ground: Ground) -> None:
    """What is there still counts; only of what is not there nothing is known."""
    backend = ground.backend
    pending, tombstone, done = announce(ground, ground.one), new_id(), new_id()
    assert backend.forbid(tombstone, 60.0) == 1
    committed(ground.send(insert(ground.one, "x"), operation_id=done))
    backend.forget(backend.now())
    assert backend.forbid(pending, 60.0) is None
    assert backend.forbid(done, 60.0) is None
    assert backend.forbid(tombstone, 60.0) == 2
    own = new_id()
    with pytest.raises(ms.OutcomeUnknown):
        backend.forbid(own, 60.0)
    assert backend.steps(own) == []
    assert backend.forbid(own) == 1
