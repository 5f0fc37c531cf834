"""What is logged: at which level, with the operation's id, and never a secret."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.errors import BackendUnavailable
from metastore.port.commit import Unknown
from metastore.retry import logs
from metastore.retry.runner import Conflict, Effort, run
from tests.contract.ground import Ground, interrupted, prepare

SECRET = "s3cr3t-geheim"


@pytest.fixture
def ground(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Ground]:
    caplog.set_level(logging.DEBUG, "metastore.operations")
    with ms.open(f"sqlite:///{tmp_path / 'metastore.db'}", principal="ada") as store:
        found = prepare(store)
        caplog.clear()
        yield found


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [r for r in caplog.records if r.name == "metastore.operations"]


def test_a_call_that_succeeds_at_once_says_nothing(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    ground.store.tables.alter(ground.table, ms.SetComment("quick"))
    ground.store.run(lambda tx: tx.tables.alter(ground.table, ms.SetComment("quick too")))
    assert not records(caplog)


def test_conflicts_and_retries(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    own, store = ms.new_operation_id(), ground.store
    with interrupted(store, lambda: store.tables.alter("m.c.one.t", ms.SetComment("other"))):
        store.tables.alter("m.c.one.t", ms.SetProperty("password", SECRET), operation_id=own)
    ours = [r for r in records(caplog) if r.operation_id == str(own)]
    assert [(r.levelno, r.attempts) for r in ours] == [(logging.DEBUG, 1), (logging.INFO, 2)]
    assert ours[0].cause == "self"
    assert ours[1].seconds >= 0
    assert all(str(own) in r.getMessage() for r in ours)
    assert "alter table 'm.c.one.t': attempt 1 lost on self" in ours[0].getMessage()


def test_a_transaction_says_it_too(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    store, first = ground.store, [True]

    def change(tx: Any) -> None:
        tx.tables.load("m.c.one.t")
        if first:
            first.clear()
            store.tables.alter("m.c.one.t", ms.SetComment("other"))
        tx.tables.alter("m.c.one.t", ms.SetComment("mine"))

    store.run(change)
    assert logging.DEBUG in [r.levelno for r in records(caplog)]
    assert logging.INFO in [r.levelno for r in records(caplog)]


def test_one_that_another_helped(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    """After the loss it is announced; the other's next change applies it."""
    store, own = ground.store, ms.new_operation_id()

    def other() -> None:
        store.tables.alter("m.c.one.t", ms.SetComment("other"))

    with interrupted(store, other, other):
        store.tables.alter("m.c.one.t", ms.SetProperty("k", "v"), operation_id=own)
    assert any(
        "another operation's commit did it" in r.getMessage() and r.operation_id == str(own) for r in records(caplog)
    )


class _Away:
    """A database that loses the answer, and then cannot be asked."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def commit(self, commit: Any) -> Any:
        return Unknown("the wire was cut")

    def forbid(self, operation_id: Any, life: float = 0.0) -> Any:
        raise BackendUnavailable("not there")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def test_an_outcome_that_nobody_knows(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    session: Any = ground.store._session
    backend, session.backend = session.backend, _Away(session.backend)
    try:
        with pytest.raises(ms.OutcomeUnknown) as caught:
            ground.store.schemas.create("m.c.new", properties={"password": SECRET}, deadline=0.5)
    finally:
        session.backend = backend
    (error,) = [r for r in records(caplog) if r.levelno == logging.ERROR]
    assert error.operation_id == str(caught.value.operation_id)
    assert "create schema 'm.c.new': its answer was lost" in error.getMessage()


def test_giving_up_and_being_slow(caplog: pytest.LogCaptureFixture) -> None:
    from metastore.clock import SYSTEM
    from metastore.retry.bucket import TokenBucket
    from metastore.retry.policy import RetryPolicy
    from tests.retry.fake import FakeClock

    caplog.set_level(logging.DEBUG, "metastore.operations")
    clock, own = FakeClock(), SYSTEM.operation_id()

    def effort(**policy: Any) -> Effort:
        return Effort(RetryPolicy(**policy), clock, TokenBucket(10, 10.0, clock), lambda: "alter table 'a'", own)

    def lose(number: int) -> None:
        raise Conflict("unavailable" if number == 2 else "self", "changed meanwhile")

    with pytest.raises(ms.RetriesExhausted):
        run(lose, effort(attempts=3))
    assert [r.levelno for r in records(caplog)] == [logging.DEBUG, logging.WARNING, logging.DEBUG, logging.WARNING]
    assert "3 attempts in" in records(caplog)[-1].getMessage()
    caplog.clear()

    def slowly(number: int) -> int:
        clock.go(logs.SLOW + 0.5)
        return number

    assert run(slowly, effort()) == 1
    (slow,) = records(caplog)
    assert (slow.levelno, slow.seconds, slow.operation_id) == (logging.WARNING, 1.5, str(own))
    assert "took 1.500 s" in slow.getMessage()


def test_no_secret_is_logged(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a value that is written, nor the password of a URL, at any level."""
    store = ground.store
    change = ms.SetProperty("password", SECRET)
    with interrupted(store, lambda: store.tables.alter("m.c.one.t", ms.SetComment("o"))):
        store.tables.alter("m.c.one.t", change, ms.SetComment(SECRET))
    session: Any = store._session
    backend, session.backend = session.backend, _Away(session.backend)
    with pytest.raises(ms.OutcomeUnknown):
        store.tables.alter("m.c.one.t", ms.SetProperty("password", SECRET + "2"), deadline=0.5)
    session.backend = backend
    with pytest.raises(ms.BackendUnavailable):
        ms.open(f"postgresql://ada:{SECRET}@127.0.0.1:1/lake")
    assert records(caplog)
    for record in caplog.records:
        assert SECRET not in record.getMessage() + repr(vars(record))


def test_nothing_is_written_unless_it_is_asked_for() -> None:
    code = "from metastore.retry import logs; logs.done(lambda: 'alter table', None, 1, 2.0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == done.stdout == ""
