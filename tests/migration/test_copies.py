"""A restored copy of a PostgreSQL database is another database: positions of the old one are refused there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metastore as ms
from tests.migration.processes import Crowd
from tests.servers.postgres import Databases, database_of


@pytest.fixture
def original(postgres_url: str) -> str:
    """Give a database in which something happened."""
    with ms.open(postgres_url) as store:
        store.metalakes.create("lake")
        store.metalakes.create("other")
    return postgres_url


@pytest.fixture
def copied(original: str, postgres_databases: Databases) -> Iterator[str]:
    """Give a copy of it."""
    url = postgres_databases.create_database(template=database_of(original))
    yield url
    postgres_databases.drop_database(url)


def positions(url: str) -> list[str]:
    with ms.open(url) as store:
        return [change.position for change in store.changes()]


def test_positions_of_the_original_are_refused(original: str, copied: str) -> None:
    old, new = positions(original), positions(copied)
    assert len(old) == len(new) == 2
    assert not set(old) & set(new)
    with ms.open(copied) as store:
        for position in old:
            with pytest.raises(ms.InvalidArgument, match="restored"):
                store.changes(after=position)
        assert [change.position for change in store.changes(after=new[0])] == new[1:]


def test_positions_of_the_copy_are_refused_in_the_original(original: str, copied: str) -> None:
    new = positions(copied)
    with ms.open(original) as store, pytest.raises(ms.InvalidArgument, match="restored"):
        store.changes(after=new[0])


def test_the_original_keeps_its_positions(original: str, copied: str) -> None:
    old = positions(original)
    positions(copied)
    assert positions(original) == old


def test_the_copy_gets_one_epoch_whoever_opens_it_first(copied: str, crowd: Crowd) -> None:
    assert crowd.open(copied) == ["ok"] * 6
    assert len({position.rpartition("-")[0] for position in positions(copied)}) == 1
    assert positions(copied) == positions(copied)


def test_a_copy_has_the_entities_and_is_sound(copied: str) -> None:
    with ms.open(copied) as store:
        assert list(store.metalakes.names()) == ["lake", "other"]
        store.metalakes.create("third")
        assert store.verify() == []
