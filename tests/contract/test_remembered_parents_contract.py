"""A new entity by path: where the path led last is remembered, and only the guards are trusted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import metastore as ms
from tests.contract.ground import Ground
from tests.servers.proxy import PostgresProxy

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@pytest.fixture
def other(ground: Ground) -> ms.Store:
    """Give a second server on the same database, which remembers nothing."""
    session = ground.store._session
    return ms.Store(ground.store._url, session.backend, session.policy, "other", session.clock)


MEANWHILE: dict[str, tuple[Callable[[ms.Store], object], type[ms.MetastoreError] | None]] = {
    "nothing": (lambda s: None, None),
    "a sibling": (lambda s: s.tables.create("m.c.one.sibling"), None),
    "the same name": (lambda s: s.tables.create("m.c.one.new"), ms.EntityAlreadyExists),
    "the same name, of a view": (lambda s: s.views.create("m.c.one.new"), ms.EntityAlreadyExists),
    "the schema renamed": (lambda s: s.schemas.rename("m.c.one", "uno"), ms.EntityNotFound),
    "the catalog renamed": (lambda s: s.catalogs.rename("m.c", "d"), ms.EntityNotFound),
    "the schema moved": (lambda s: s.schemas.rename("m.c.one", "m.c.two.one"), ms.EntityNotFound),
    "the schema dropped": (lambda s: s.schemas.drop("m.c.one", cascade=True), ms.EntityNotFound),
    "the catalog disabled": (lambda s: s.catalogs.disable("m.c"), ms.NotInUse),
    "the schema renamed and back": (
        lambda s: (s.schemas.rename("m.c.one", "uno"), s.schemas.rename("m.c.uno", "one")),
        None,
    ),
    "another schema there": (
        lambda s: (s.schemas.rename("m.c.one", "uno"), s.schemas.rename("m.c.two", "one")),
        None,
    ),
    "the schema made anew": (
        lambda s: (s.schemas.drop("m.c.one", cascade=True), s.schemas.create("m.c.one")),
        None,
    ),
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_what_others_did_meanwhile(name: str, ground: Ground, other: ms.Store) -> None:
    """A store that remembers parents ends as one that looks them up."""
    act, error = MEANWHILE[name]
    ground.store.tables.create("m.c.one.before")
    act(other)
    if error is not None:
        before = ground.dump()
        with pytest.raises(error):
            ground.store.tables.create("m.c.one.new")
        assert ground.dump() == before
    else:
        table = ground.store.tables.create("m.c.one.new")
        assert table.record.chain == other.tables.load("m.c.one.new").record.chain
        assert ground.store.tables.create("m.c.one.next").names[:-1] == table.names[:-1]
    assert ground.store.verify() == []


def test_a_path_to_another_family_is_another_path(ground: Ground) -> None:
    """Below the schema ``m.c.one.t`` stands something else than below the table of that name."""
    ground.store.schemas.create("m.c.one.t")
    assert ground.store.tables.create("m.c.one.t.x").record.chain[-2].kind == "schema"
    assert ground.store.partitions.create(ground.table, "q", values={}).name == "q"


def test_what_is_asked_for_if_it_exists_is_looked_for(ground: Ground, other: ms.Store) -> None:
    ground.store.tables.create("m.c.one.before")
    there = other.tables.create("m.c.one.new", comment="theirs")
    assert ground.store.tables.create("m.c.one.new", if_exists="return") == there
    assert ground.store.tables.create("m.c.one.new", if_exists="replace").version == 2


def test_round_trips(postgres_address: tuple[str, int], postgres_url: str) -> None:
    """The first by a path reads the way; the next ones are one round trip; a wrong guess is one more than reading."""
    with (
        PostgresProxy(*postgres_address) as proxy,
        ms.open(proxy.url_for(postgres_url)) as store,
        ms.open(postgres_url) as other,
    ):
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")

        def trips(path: str) -> int:
            before = proxy.round_trips
            store.tables.create(path)
            return proxy.round_trips - before

        trips("m.c.s.warm")
        assert [trips("m.c.s.a"), trips("m.c.s.b")] == [1, 1]
        other.schemas.rename("m.c.s", "t")
        other.schemas.rename("m.c.t", "s")
        assert [trips("m.c.s.d"), trips("m.c.s.e")] == [3, 1]
        other.schemas.rename("m.c.s", "t")
        other.schemas.rename("m.c.t", "s")
        store.tables.alter("m.c.s.a", ms.SetComment("new"))  # what it has read is remembered too
        assert trips("m.c.s.f") == 1
