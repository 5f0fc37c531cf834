"""A user's rights among the children of a place are read in one of two ways: both find the same, as the rules say."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import metastore as ms
from metastore.backends.postgres import reads as on_postgres
from metastore.backends.sql import rights
from metastore.backends.sqlite import reads as on_sqlite
from metastore.port.rights import Whose
from tests.governance.oracle.changes import change
from tests.governance.oracle.compare import compare
from tests.governance.oracle.runs import compared
from tests.governance.oracle.world import OBJECTS, USERS, World

_WAYS = ("all that the user has", "all children", "the shorter one")
Take = Callable[[str], None]


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Iterator[Take]:
    """Give what chooses a way for the statements that follow."""

    def forget() -> None:
        on_sqlite._TEXTS.rights.cache_clear()
        on_postgres._TEXTS.rights.cache_clear()

    def take(way: str) -> None:
        monkeypatch.undo()
        forget()
        if way == _WAYS[-1]:
            monkeypatch.setattr(rights, "_LEVELS", (1, 2, 5))
        else:
            monkeypatch.setattr(rights, "_are_fewer", lambda *_: str(_WAYS.index(way)))

    yield take
    monkeypatch.undo()
    forget()


def test_both_ways_find_the_same(url: str, take: Take) -> None:
    with ms.open(url, principal="root") as store:
        world = World(store, random.Random(34))
        for _ in range(60):
            on, role, member = [world.held[world.one(*kinds)] for kinds in (OBJECTS, ("role",), ("user", "group"))]
            for call in (
                lambda on=on, member=member: store.owners.set(on, member),
                lambda on=on, role=role: store.roles.grant(role, "manage_grants", on),
                lambda role=role, member=member: store.roles.assign(role, member),
            ):
                with suppress(ms.MetastoreError):  # of two metalakes
                    call()
            if (act := change(world)) is not None:
                act()
        backend: Any = store._session.backend
        parents = {one.parent for one in world.rules.things.values() if one.parent is not None}
        places = [(world.rules.way(one)[0], one) for one in parents]
        found: dict[str, list[Any]] = {}
        for way in _WAYS:
            take(way)
            rows = [backend.rights(Whose(lake, user), [], below) for lake, below in places for user in USERS]
            found[way] = [(sorted(one.owners), sorted(one.grants)) for one in rows]
        first, *others = found.values()
    assert sum(bool(owners) for owners, _ in first) > 4
    assert sum(bool(grants) for _, grants in first) > 4
    assert others == [first, first]


@pytest.mark.parametrize("way", _WAYS[1:])
def test_users_see_what_the_rules_say_in_each_way(sqlite_url: str, take: Take, way: str) -> None:
    take(way)
    with ms.open(sqlite_url, principal="root") as store, ms.open(sqlite_url) as other:
        found: list[Any] = []
        assert compared(compare([store, other], 34, 150), found) >= 150
    assert found == []
