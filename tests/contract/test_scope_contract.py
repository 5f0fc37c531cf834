"""Pages of the feed below a path: compared as loads compare names, and never silently empty."""

from __future__ import annotations

import pytest

import metastore as ms
from metastore.feed.feed import position_of
from tests.contract.ground import Ground


@pytest.fixture
def folding(ground: Ground) -> ms.Store:
    """Give a catalog ``m.Folds`` that folds case, with a table ``m.Folds.Straße.Orders``."""
    store = ground.store
    store.catalogs.create("m.Folds", type="relational", fold_case=True)
    store.tables.create("m.Folds.Straße.Orders", parents=True)
    return store


@pytest.mark.parametrize("under", ["m.Folds.Straße.Orders", "m.Folds.strasse.ORDERS", "m.Folds.STRASSE.orders"])
def test_a_folding_catalog_folds(folding: ms.Store, under: str) -> None:
    assert folding.tables.exists(under)
    assert [e.name for e in folding.find(under=under.rpartition(".")[0])] == ["Orders"]
    assert [c.action for c in folding.changes_page(under=under).items] == ["create"]
    folding.schemas.rename("m.Folds.Straße", "STRASSE")
    folding.tables.alter(under, ms.SetComment("x"))
    assert [c.action for c in folding.changes_page(under=under).items] == ["create", "alter"]


def test_the_names_above_are_exact(folding: ms.Store) -> None:
    for under in ("m.folds", "m.folds.strasse", "M.Folds.Straße"):
        with pytest.raises(ms.EntityNotFound, match="no changes below it"):
            folding.changes_page(under=under)


def test_a_path_to_nothing(ground: Ground) -> None:
    """What was below it at that time comes first; then the consumer is told that there will be no more."""
    store = ground.store
    with pytest.raises(ms.EntityNotFound, match=r"m\.c\.oen does not exist"):
        store.changes_page(under="m.c.oen")
    store.schemas.drop(ground.two)
    page = store.changes_page(under="m.c.two")
    assert [c.action for c in page.items] == ["create", "drop"]
    with pytest.raises(ms.EntityNotFound):
        store.changes_page(after=page.items[-1].position, under="m.c.two")
    assert store.changes_page(after=page.items[-1].position, under=ground.two).items == ()
    for under in ("m", "m.c", "m.c.one.t", "m.c.one.t.p", ground.table):
        assert (items := store.changes_page(under=under).items)
        assert store.changes_page(after=items[-1].position, under=under).items == (), "there may be more later"


def test_kinds_that_are_none(ground: Ground) -> None:
    for kinds in (["tabel"], ["table", ""], ["Table"]):
        with pytest.raises(ms.InvalidArgument, match="there is no kind"):
            ground.store.changes_page(kinds=kinds)
    with ground.store.leases.acquire("job"):
        pass
    assert {c.kind for c in ground.store.changes_page(kinds=["lease", "partition"]).items} == {"lease", "partition"}


@pytest.mark.parametrize("ahead", [1, 1 << 40])
def test_a_position_ahead_of_the_feed(ground: Ground, ahead: int) -> None:
    epoch, _ = ground.backend.feed_start()
    last = ground.backend.watermark().position
    assert list(ground.store.changes(after=position_of(epoch, last))) == []
    with pytest.raises(ms.InvalidArgument, match="ahead of the feed"):
        list(ground.store.changes(after=position_of(epoch, last + ahead)))


def test_the_history_of_one_that_was_never_committed(ground: Ground) -> None:
    tx = ground.store.transaction()
    tx.__enter__()
    made = tx.tables.create("m.c.one.made")
    tx.tables.alter("m.c.one.t", ms.SetComment("ours"))
    ground.store.tables.alter("m.c.one.t", ms.SetComment("theirs"))
    with pytest.raises(ms.VersionConflict):
        tx.__exit__(None, None, None)
    with pytest.raises(ms.EntityNotFound, match="did not commit"):
        list(ground.store.tables.history(made))
