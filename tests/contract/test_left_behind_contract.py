"""What a dead or unlucky operation leaves behind holds nobody up for long."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from metastore.deadlines import until
from metastore.port.commit import Commit, CommitOutcome, Conflicted, Unknown
from metastore.port.intents import Mark
from tests.contract.ground import Ground
from tests.servers.process import wait_until


class _Unlucky:
    """A backend whose first commit finds a lock in its way, and whose marks are lost on their way to it."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._first = True

    def commit(self, commit: Commit) -> CommitOutcome:
        if self._first:
            self._first = False
            return Conflicted("busy")
        result: CommitOutcome = self._backend.commit(commit)
        return result

    def mark(self, mark: Mark) -> CommitOutcome:
        return Unknown("lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def test_the_others_turn_does_not_count_what_a_dead_owner_left(ground: Ground) -> None:
    """The mark held for 50 ms and was found later: the others' turn is as long as the mark held."""
    owner = ground.store._session.clock.operation_id()
    ground.backend.mark(Mark(owner, ground.one.id, 0.05))
    time.sleep(0.3)
    assert wait_until(lambda: bool(ground.backend.clear(ground.one.id, owner)), 5.0)
    assert all(one.mark is None and one.seconds < 0.1 for one in ground.backend.marked([ground.one.id]))


def test_a_mark_that_was_never_set_is_done_without(ground: Ground) -> None:
    session = ground.store._session
    session.backend, backend = _Unlucky(session.backend), session.backend
    try:
        assert ground.store.schemas.rename(ground.one, "renamed", deadline=3.0).path == "m.c.renamed"
    finally:
        session.backend = backend
    assert ground.backend.marked([ground.one.id]) == []


def test_gc_goes_round_a_frozen_scope(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was dropped below it is left for the next time, and the rest is collected."""
    monkeypatch.setattr("metastore.gc._PATIENCE", 1.0)
    ground.store.tables.drop(ground.table)
    ground.store.schemas.drop(ground.two, cascade=True)
    holder = ground.store._session.clock.operation_id()
    ground.backend.mark(Mark(holder, ground.one.id, 60.0))
    with until(time.monotonic() + 20.0):
        ground.store.gc(retention=timedelta(0))
    assert ground.backend.by_id([ground.table.id])[0] is not None
    assert ground.backend.by_id([ground.two.id])[0] is None
    ground.backend.unmark(ground.one.id, holder)
