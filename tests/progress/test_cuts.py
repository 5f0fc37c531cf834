"""Exactly once: the connection is cut at every protocol message of a few calls, also while it is made.

``tests/lost`` has the other calls.

A call is made again and again; the n-th time it loses its n-th message: all of it, its second half,
or the answer to it. What the call returned must be what history says, each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows
from tests.long import long_unless
from tests.progress.hooks import announces
from tests.servers.process import wait_until
from tests.servers.proxy import ENDS_ROUND_TRIP, PostgresProxy

PATH = "lake.cat.s.t"
LIMIT = 200
TERMINATE = b"X"
Call = Callable[[ms.Store, ms.Store, str], object]
"""Makes one call through the first store; the second one is not disturbed. The name is a new one each time."""


@pytest.fixture
def proxied(postgres_url: str, postgres_address: tuple[str, int]) -> Iterator[tuple[PostgresProxy, str]]:
    seed(postgres_url, PATH)
    with PostgresProxy(*postgres_address) as proxy:
        yield proxy, postgres_url


def create(store: ms.Store, _: ms.Store, name: str) -> object:
    return store.tables.create(f"lake.cat.s.{name}", principal=name)


def alter_with_id(store: ms.Store, direct: ms.Store, name: str) -> object:
    operation = ms.new_operation_id()
    found = store.tables.alter(PATH, ms.SetProperty("k", name), principal=name, operation_id=operation)
    assert direct.outcome(operation).result.version == found.version
    return found


def alter_announced(store: ms.Store, direct: ms.Store, name: str) -> object:
    announces(store, direct.tables.load(PATH))
    return store.tables.alter(PATH, ms.SetProperty("k", name), principal=name)


def transaction(store: ms.Store, _: ms.Store, name: str) -> object:
    with store.transaction(principal=name) as tx:
        tx.tables.alter(PATH, ms.SetComment(name))
        tx.tables.create(f"lake.cat.s.{name}")
    return None


def freeze(store: ms.Store, direct: ms.Store, name: str) -> object:
    schema = direct.schemas.load("lake.cat.s")
    backend = direct._session.backend
    assert wait_until(lambda: not backend.marked([schema.id]), 10)  # the others' turn is over: as many messages as ever
    with store.schemas.exclusive("lake.cat.s", principal=name) as tx:
        tx.tables.create(f"lake.cat.s.{name}")
    return None


CALLS: dict[str, Call] = {f.__name__: f for f in (create, alter_with_id, alter_announced, transaction, freeze)}
CONNECTING = 9
"""How many of the cuts meet a connection that is being made, at most."""
STEPS = {"transaction": 2}


def disturbances(proxy: PostgresProxy) -> Iterator[tuple[str, Callable[..., Any], Callable[[str, bytes], bool]]]:
    """Before, during and after the bytes; an answer belongs to a whole round trip.

    At last the answers to what names the call, as its commit does: a call may make a round trip more than the one
    before, so that a number misses its commit.
    """
    yield "before", proxy.cut_before_send, is_of_the_call
    yield "within", proxy.cut_while_sending, is_of_the_call
    yield "after", proxy.cut_after_send, lambda _, message: message[:1] in ENDS_ROUND_TRIP
    yield "answer", proxy.cut_after_send, lambda name, message: name.encode() in message


def is_of_the_call(_: str, message: bytes) -> bool:
    """Whether a message is the call's own: a connection of the call before may say late that it ends."""
    return message[:1] != TERMINATE


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", long_unless(CALLS, lambda what: what != "freeze"))
def test_cut_at_every_message(proxied: tuple[PostgresProxy, str], what: str) -> None:
    """Field case 34: What returns was applied once, and what raises was not.

    Only where no connection was made does it raise.
    """
    proxy, url = proxied
    names, refused = list[str](), list[str]()
    with ms.open(proxy.url_for(url)) as store, ms.open(url) as direct:
        for how, cut, match in disturbances(proxy):
            for nth in range(1, LIMIT):
                store._session.bucket._full_at = 0.0  # many cuts in a second: no process meets that
                store._session.backend.pool.forget()  # type: ignore[attr-defined]  # so that each call sends the same
                name = f"{how}{nth}"
                order = cut(partial(match, name), nth=nth)
                try:
                    result = CALLS[what](store, direct, name)
                except ms.BackendUnavailable:
                    refused.append(name)  # the connection could not be made: nothing was sent
                else:
                    names.append(name)
                    if isinstance(result, ms.Entity):
                        assert direct.tables.load(result.path) == result
                proxy.reset()
                if not order.fired.is_set():
                    break  # the call has fewer messages
            assert 1 < nth < LIMIT - 1
        assert len(names) > 8
        assert len(refused) <= CONNECTING, refused
        written = "SELECT principal, count(*) FROM operation WHERE seq IS NOT NULL AND principal IS NOT NULL"
        counts = dict(rows(url, f"{written} AND principal <> 'seed' GROUP BY principal"))
        assert counts == dict.fromkeys(names, STEPS.get(what, 1))
        ambiguous = store.metrics().ambiguous
        assert ambiguous["applied"] >= 1
        assert ambiguous["not_applied"] >= 1
    assert rows(url, "SELECT 1 FROM operation WHERE action = 'pending'") == []
    assert rows(url, "SELECT 1 FROM guard WHERE mark IS NOT NULL") == []
    assert violations(url) == []


def test_blind_retries_are_caught(proxied: tuple[PostgresProxy, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a lost answer is taken for "not applied", and the call is made again."""
    proxy, url = proxied
    fresh = ms.new_operation_id

    def again(self: Any, unknown: Any) -> None:
        from metastore.retry.runner import Conflict

        self.id = fresh()
        raise Conflict("lost", "blindly again")

    monkeypatch.setattr("metastore.operation.record.OperationRow.lost", again)
    with ms.open(proxy.url_for(url)) as store:
        order = proxy.cut_after_send(lambda message: message[:1] == b"B" and b"AddColumn" in message)
        with pytest.raises(ms.EntityAlreadyExists):  # reported as failed, and it was applied
            store.tables.alter(PATH, ms.AddColumn("c", "int"))
        assert order.fired.is_set()
        assert [c.name for c in store.tables.load(PATH).columns] == ["c"]
