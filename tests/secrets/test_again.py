"""A call that is made again has one deadline: while the settings of its catalog change, and while parents vanish."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

import metastore as ms
from metastore import Store
from metastore.clock import SYSTEM
from metastore.combine.waiting import waiting
from metastore.deadlines import until
from metastore.kinds.registry import KINDS
from metastore.managers import create_call
from metastore.managers.options import CallOptions
from metastore.managers.secrets.sealing import sealed_call
from metastore.operation.perform import perform
from metastore.operation.request import Call, Request
from metastore.operation.seals import Stale
from metastore.retry.runner import Conflict
from tests.retry.fake import FakeClock


def test_a_call_ends_although_its_catalog_changes_for_ever() -> None:
    with ms.open("memory://", deadline=0.2) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True)
        calls = 0

        def call(_: Any) -> NoReturn:
            nonlocal calls
            calls += 1
            assert calls < 1_000_000, "it goes on for ever"
            raise Stale

        with pytest.raises(ms.DeadlineExceeded, match="nothing was applied"):
            sealed_call(store._session, KINDS["table"], "lake.c.s.t", {}, call)
        assert calls > 1


def _losing(what: str = "alter") -> Request[None]:
    """Return a request whose attempts all lose."""

    def attempt(_: object) -> NoReturn:
        raise Conflict("scope", "somebody else won")

    return Request(what, lambda: what, attempt, lambda _: None, tuple, where=lambda: None)


def _on(store: Store) -> FakeClock:
    """Let the store's calls have a clock that goes only when they wait."""
    clock = FakeClock(_now=[SYSTEM.monotonic()])
    store._session.clock = clock
    return clock


@pytest.mark.parametrize("deadline", [None, 20.0])
def test_what_is_made_again_ends_with_the_first_deadline(deadline: float | None) -> None:
    with ms.open("memory://", deadline=10.0) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        clock, times, wanted = _on(store), 0, deadline or 10.0
        began = clock.monotonic()

        def call(_: Any) -> None:
            nonlocal times
            times += 1
            if times == 1:
                clock.go(0.7 * wanted)
                raise Stale
            perform(store._session, _losing(), Call(deadline=deadline))

        options = CallOptions() if deadline is None else CallOptions(deadline=deadline)
        with pytest.raises(ms.DeadlineExceeded):
            sealed_call(store._session, KINDS["catalog"], "lake.c", options, call)
        assert times == 2
        assert clock.monotonic() - began == pytest.approx(wanted, abs=0.1)


def test_a_request_that_travels_ends_with_the_deadline_around_it() -> None:
    with ms.open("memory://", deadline=10.0) as store:
        ends = store._session.clock.monotonic() + 3.0
        with until(ends):
            one = waiting(store._session, _losing("create"), Call())
        assert one is not None
        assert one.ends == pytest.approx(ends, abs=0.01)


def test_a_create_below_parents_that_vanish_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with ms.open("memory://", deadline=10.0) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        clock = _on(store)
        began = clock.monotonic()

        def made_and_dropped(*_: object) -> bool:
            clock.go(0.5)
            assert clock.monotonic() - began < 60.0, "it goes on for ever"
            return True

        monkeypatch.setattr(create_call, "_make_parent", made_and_dropped)
        with pytest.raises(ms.DeadlineExceeded, match="dropped again and again"):
            store.tables.create("lake.c.s.t", parents=True)
        assert clock.monotonic() - began == pytest.approx(10.0, abs=0.6)
