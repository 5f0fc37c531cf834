"""``store.revert`` of trees whose schemas moved below each other, and were dropped there."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import permutations

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import InvalidArgument, MetastoreError
from tests.past.test_diff import shown
from tests.past.trees import tree

_NAMES = "abcd"


@pytest.fixture
def lake(store: Store) -> Store:
    """Give the store with a catalog."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    return store


def test_what_was_made_below_something_that_moved_and_was_dropped_goes_when_it_comes_back(lake: Store) -> None:
    """Its present parent was made since, and stays gone."""
    lake.schemas.create("m.c.s")
    before, was = lake.position(), shown(tree(lake))
    lake.tables.create("m.c.s.made")
    lake.schemas.create("m.c.new")
    lake.schemas.rename("m.c.s", "m.c.new.s")
    lake.schemas.drop("m.c.new.s", cascade=True)
    lake.schemas.drop("m.c.new")
    lake.revert("m.c", to=before)
    assert shown(tree(lake)) == was
    assert lake.revert("m.c", to=before) == []
    assert lake.verify() == []


def test_schemas_that_stood_the_other_way_round_when_they_were_dropped_come_back(lake: Store) -> None:
    """Of each order of three schemas: each waits for another one, which has to come back first."""
    deep = [lake.schemas.create(f"m.c.{path}") for path in ("a", "a.b", "a.b.d")]
    before, was = lake.position(), shown(tree(lake))
    for order in permutations(range(3)):
        where = "m.c"
        for i in order:  # aside first, so that none moves below itself
            lake.schemas.rename(deep[i], f"m.c.x{i}")
        for i in order:
            lake.schemas.rename(deep[i], f"{where}.x{i}")
            where = f"{where}.x{i}"
        lake.schemas.drop(f"m.c.x{order[0]}", cascade=True)
        assert len(lake.revert("m.c", to=before)) == 3
        assert shown(tree(lake)) == was
    assert lake.verify() == []


def _moved_about(store: Store, dice: random.Random) -> None:
    """Make, move, drop or restore something."""
    here = list(store.find("m.c"))
    scopes = ["m.c", *[one.path for one in here if one.kind == "schema"]]
    verb = dice.choice(["schema", "table", "move", "move", "move", "drop", "restore"])
    path = f"{dice.choice(scopes)}.{dice.choice(_NAMES)}"
    if verb in ("schema", "table"):
        store.manager(verb).create(path)
    elif verb == "restore":
        store.schemas.restore(path)
    elif here:
        one = dice.choice(here)
        if verb == "move":
            store.manager(one.kind).rename(one, path)
        else:
            store.manager(one.kind).drop(one, cascade=one.kind == "schema")


def _goes_back(store: Store, position: str) -> bool:
    try:
        store.revert("m.c", kind="catalog", to=position)
    except InvalidArgument as error:
        if "is gone" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 150), marks=pytest.mark.long)])
def test_a_tree_that_was_moved_about_goes_back(seeds: range) -> None:
    """It is what it was, or the call says what is gone: nothing else, and never a tree that was never there."""
    back = gone = 0
    for seed in seeds:
        dice = random.Random(seed)
        with ms.open("memory://", principal="t") as store:
            store.metalakes.create("m")
            store.catalogs.create("m.c", type="relational")
            then = [(store.position(), shown(tree(store)))]
            for _ in range(45):
                with suppress(MetastoreError):
                    _moved_about(store, dice)
                then.append((store.position(), shown(tree(store))))
            for position, was in dice.sample(then, 6):
                if _goes_back(store, position):
                    assert shown(tree(store)) == was
                    back += 1
                else:
                    gone += 1
            assert store.verify() == []
    assert back > 4 * gone
