"""A right that is taken away between the decision and the commit: the commit does not land, whatever takes it.

The negative controls leave the evidence out of the commit's guards, or let what takes the right away raise nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

import metastore as ms
from metastore import Store
from metastore.managers.manager import Manager
from metastore.operation import authorized, request
from metastore.operation.request import Proposal
from tests.bad_input.surface import METHODS
from tests.contract.ground import behind, dump, interrupted
from tests.contract.losses import LOSSES, UNTRIED, WRITES, Held, fits, held, pairs

pytestmark = pytest.mark.one_in(3)

_REFUSED = (ms.PermissionDenied, ms.EntityNotFound, ms.VersionConflict)
_CONTENT = ("guard", "entity", "owned", "relation")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])])
def url(request: pytest.FixtureRequest) -> str:
    """Give the URL of a fresh database: these tests judge code above the port."""
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open a sync store: an async one would wait for itself where a loss comes in the middle of a write."""
    with ms.open(url, principal="tester") as opened:
        yield opened


@pytest.fixture
def at(store: Store) -> Held:
    """Give the lake, where ann may write what is in sales, by a role of a group that owns the schemas."""
    return held(store)


def _content(store: Store) -> dict[str, list[tuple[object, ...]]]:
    return {name: rows for name, rows in dump(behind(store)).items() if name in _CONTENT}


def _lost(at: Held, write: str, loss: str) -> None:
    """Let ann write while she loses the right to it: what there is then does not change."""
    store, ann = at.store, at.store.as_user("ann@corp")
    LOSSES[loss].before(store)
    ann.tables.alter("lake.sales.eu.refunds", ms.SetProperty("early", "yes"))  # the evidence is remembered
    after = {}

    def take() -> None:
        LOSSES[loss].take(store)
        after.update(_content(store))

    with interrupted(ann, take):
        try:
            done = WRITES[write](ann, at)
        except _REFUSED:
            done = False
    assert done is False
    assert _content(store) == after
    assert store.verify() == []


@pytest.mark.each_value
@pytest.mark.parametrize(("write", "loss"), pairs())
def test_what_rests_on_a_lost_right_does_not_land(at: Held, write: str, loss: str) -> None:
    _lost(at, write, loss)


@pytest.mark.parametrize("loss", ["revoke", "change the owner", "deny by attach_many"])
@pytest.mark.parametrize("write", ["create", "alter"])
def test_postgresql_compares_the_evidence(postgres_url: str, write: str, loss: str) -> None:
    with ms.open(postgres_url, principal="tester") as store:
        _lost(held(store), write, loss)


@pytest.mark.long
@pytest.mark.parametrize(("write", "loss"), [(w, loss) for w in WRITES for loss in LOSSES if fits(w, loss)])
def test_no_write_lands_after_any_loss(at: Held, write: str, loss: str) -> None:
    _lost(at, write, loss)


@pytest.mark.parametrize("write", WRITES)
def test_each_write_lands_without_a_loss(at: Held, write: str) -> None:
    """The negative control of the writes: ann may do each of them."""
    before = _content(at.store)
    assert WRITES[write](at.store.as_user("ann@corp"), at) is not False
    assert _content(at.store) != before
    assert at.store.verify() == []


class _Noted:
    """A user's store, or one of its managers, that notes which methods are called."""

    def __init__(self, of: Any, called: set[str]) -> None:
        self._of, self._called = of, called

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if inspect.ismethod(found):
            self._called.add(_named(found))
        return found if callable(found) else _Noted(found, self._called)


def _named(method: Any) -> str:
    """Return the name of a method; the managers' methods that create an entity are one, and have a method for each."""
    of_a_kind = method.__name__ == "create" and isinstance(method.__self__, Manager)
    return "Manager.create" if of_a_kind else str(method.__func__.__qualname__)


def test_each_method_that_writes_has_a_line(at: Held) -> None:
    """What takes a lease writes. A new one is found by looking, and needs a line in WRITES, or a reason."""
    called: set[str] = set()
    for write in WRITES.values():
        with suppress(ms.MetastoreError):  # an earlier one has taken what this one needs
            write(cast(Store, _Noted(at.store.as_user("ann@corp"), called)), at)
    of_leases = ("leases", "lease", "cache", "consumer", "consumers")
    writes = {
        _named(method.on(at.store))
        for method in METHODS
        if method.owner not in of_leases and method.owner not in ("past", "transaction")
        if any(one.name == "lease" for one in method.parameters)
    }
    assert writes == (called & writes) | set(UNTRIED)
    assert not called & set(UNTRIED)


@pytest.mark.parametrize("loss", LOSSES)
def test_evidence_that_is_not_guarded_lets_it_land(at: Held, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    LOSSES[loss].before(at.store)
    ann = at.store.as_user("ann@corp")
    guarded = authorized._guarded

    def unguarded(access: object, view: object, proposal: Proposal[object], merge: object) -> Proposal[object]:
        rests = guarded(access, view, proposal, merge)  # type: ignore[arg-type]  # it decides, and guards nothing
        assert isinstance(rests, Proposal)
        return Proposal((), proposal.writes, proposal.finish, evidence=rests.evidence)

    monkeypatch.setattr(authorized, "_guarded", unguarded)
    with interrupted(ann, lambda: LOSSES[loss].take(at.store)):
        ann.tables.alter("lake.sales.eu.orders", ms.SetComment("late"))
    assert at.store.tables.load(at.orders).comment == "late"
    (found,) = {violation.invariant for violation in at.store.verify()}
    assert found == 14


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.raises])
def test_a_loss_that_raises_nothing_is_found(at: Held, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    LOSSES[loss].before(at.store)
    assert at.store.verify() == []

    def nothing(writes: Collection[object]) -> set[int]:
        return set()

    monkeypatch.setattr(request, "raising", nothing)
    LOSSES[loss].take(at.store)
    found = at.store.verify()
    assert {violation.invariant for violation in found} == {14}
    assert "raised no scope version" in found[0].message
