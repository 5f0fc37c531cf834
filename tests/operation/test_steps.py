"""Each step of an iterator is a call: one that finds nothing ends at its deadline, and reads no page after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

import metastore as ms
from metastore import Store
from metastore.clock import Clock
from metastore.feed import feed
from metastore.managers import find

_PAGE: Final = 5
_TAKES, _DEADLINE = 2.0, 5.0
"""How long a page takes, and a step may (seconds): so three pages are read."""
_READ: Final = 3


@dataclass(frozen=True)
class _Slow(Clock):
    """A clock that goes only when a page is read."""

    pages: list[str] = field(default_factory=list)

    def monotonic(self) -> float:
        return _TAKES * len(self.pages)


class _Slowly:
    """A backend of which each page takes time."""

    def __init__(self, backend: Any, clock: _Slow) -> None:
        self._backend, self._clock = backend, clock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)
        if name not in ("find", "feed"):
            return method

        def read(*args: Any, **options: Any) -> Any:
            self._clock.pages.append(name)
            return method(*args, **options)

        return read


@pytest.fixture
def clock() -> _Slow:
    return _Slow()


@pytest.fixture
def store(clock: _Slow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Give a store with many tables in small pages; each page takes time."""
    monkeypatch.setattr(find, "_PAGE", _PAGE)
    monkeypatch.setattr(feed, "_PAGE", _PAGE)
    with ms.open("memory://") as store:
        store.metalakes.create("m")
        store.users.create("m.ann")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.tables.create_many("m.c.s", [{"name": f"t{n:03}"} for n in range(20 * _PAGE)])
        store._session.clock, store._session.backend = clock, _Slowly(store._session.backend, clock)
        yield store.bind(deadline=_DEADLINE)


_NOTHING: Final[dict[str, Callable[[Store], Iterator[Any]]]] = {
    "find by text": lambda store: store.find("m.c.s", text="nowhere"),
    "find by properties": lambda store: store.find("m.c.s", properties={"no": "body"}),
    "changes of a kind": lambda store: store.changes(kinds=["topic"]),
    "changes of a user": lambda store: store.as_user(("m", "ann")).changes(after=_start(store)),
    "diff": lambda store: store.diff(_start(store), under="m.ann"),
}


def _start(store: Store) -> str:
    return next(store.changes(kinds=["catalog"])).position


@pytest.mark.parametrize("search", list(_NOTHING))
def test_a_step_that_finds_nothing_ends_at_the_deadline(store: Store, clock: _Slow, search: str) -> None:
    found = _NOTHING[search](store)
    clock.pages.clear()
    with pytest.raises(ms.DeadlineExceeded, match="set a longer one"):
        next(found)
    assert len(clock.pages) == _READ


def test_a_long_listing_that_finds_something_in_each_step_has_a_deadline_for_each(store: Store, clock: _Slow) -> None:
    assert len(list(store.find("m.c.s"))) == 20 * _PAGE
    assert len(clock.pages) * _TAKES > 2 * _DEADLINE


def test_a_timeout_bounds_the_whole_search(store: Store, clock: _Slow) -> None:
    """What its last page brings too late is not shown: another backend had stopped the page."""
    found, shown = store.find("m.c.s", timeout=_DEADLINE), list[ms.Entity]()
    with pytest.raises(ms.DeadlineExceeded):
        shown.extend(found)
    assert len(clock.pages) == _READ
    assert len(shown) == (_READ - 1) * _PAGE
