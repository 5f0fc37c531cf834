"""An interrupt (Ctrl-C, a cancelled task) in the middle of a commit: the call has happened or is withdrawn.

``store.outcome`` says which, under the id that the interrupt carries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore.port.commit import Commit, CommitOutcome
from tests.contract.ground import Ground


class Interrupt(BaseException):
    """As KeyboardInterrupt; pytest would end with that."""


def cut(ground: Ground, *, late: bool) -> Callable[[Commit], CommitOutcome]:
    commit = ground.backend.commit

    def interrupted(given: Commit) -> CommitOutcome:
        if not given.writes:
            return commit(given)
        if late:
            commit(given)
        raise Interrupt

    return interrupted


CALLS: dict[str, Callable[[Any], object]] = {
    "create": lambda store: store.schemas.create("m.c.new", operation_id=ms.new_operation_id()),
    "rename": lambda store: store.schemas.rename("m.c.two", "new"),
}


def in_transaction(store: Any) -> None:
    with store.transaction() as tx:
        tx.schemas.create("m.c.new")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("call", [*CALLS.values(), in_transaction], ids=[*CALLS, "transaction"])
def test_in_the_middle_of_a_commit(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], object], late: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ground.backend, "commit", cut(ground, late=late))
        with pytest.raises(Interrupt) as raised:
            call(ground.store)
    operation_id = vars(raised.value)["operation_id"]
    assert ground.store.outcome(operation_id).state == ("committed" if late else "cancelled")
    assert ground.store.schemas.exists("m.c.new") is late
    assert ground.store.verify() == []


def test_a_lease_that_was_taken_unheard_is_released(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = type(ground.backend.leases)
    take = rows.take

    def interrupted(self: Any, want: Any) -> None:
        take(self, want)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(rows, "take", interrupted)
        with pytest.raises(Interrupt):
            ground.store.leases.acquire("x")
    assert ground.store.leases.holder("x") is None
    ground.store.leases.acquire("x").release()
