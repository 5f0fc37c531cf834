"""What may be kept while a change is announced: an answer that shows the change, where no other is announced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

import metastore as ms
from metastore.cache.entries import Entries
from metastore.cache.entry import Entry, entry_of
from metastore.cache.fence import CacheLease
from metastore.cache.fill import Announced
from metastore.cache.leased import Leased
from metastore.cache.membership import Member
from metastore.clock import SYSTEM
from metastore.port.members import Announcement, Covered
from tests.cache.kept import LONG, keep, lake, leased
from tests.servers.process import wait_until

T = "lake.c.s.t"


class _Member:
    """What one member knows, and a table whose versions it meets."""

    def __init__(self, store: ms.Store) -> None:
        self._store = store
        self._announced, self._entries = Announced(), Entries(100, 1 << 20)
        self._lease = CacheLease(SYSTEM, self._entries)
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        self.id = store.tables.create(T, parents=True).id

    def entry(self) -> Entry:
        """Return an answer that shows the table as it is."""
        return entry_of(self._store.tables.load(T), tuple(T.split(".")), 0)

    def change(self) -> None:
        self._store.tables.alter(T, ms.SetComment(f"after {self.entry().found.version}"))  # type: ignore[union-attr]

    def sees(self, *numbers: int, scopes: frozenset[int] = frozenset(), above: int | None = None) -> None:
        """Take up a look that shows these announcements of the table, and the one ``above`` of all of the catalog."""
        covered = Covered(ids=frozenset([self.id]), scopes=scopes)
        what = [Announcement(number, 1000 + number, covered) for number in numbers]
        if above is not None:
            catalog = self._store.catalogs.load("lake.c").id
            what.append(Announcement(above, 1000 + above, Covered(scopes=frozenset([catalog]))))
        for one in self._announced.see(what, self._entries.version_of):
            self._entries.evict_announced(one)

    def connects(self) -> None:
        self._announced.forget()

    def reads(self, answer: Callable[[], Entry] | None = None) -> bool:
        """Read the table, keep the answer if that is allowed, and return whether it was."""
        asked = self._announced.asked(self._lease)
        entry = (answer or self.entry)()
        kept = self._announced.may_keep(asked, entry)
        if kept:
            self._entries.put("t", entry)
        return kept


@pytest.fixture
def member() -> Iterator[_Member]:
    """Give a member that knows nothing yet."""
    with ms.open("memory://") as store:
        yield _Member(store)


def test_a_change_of_what_was_kept_is_seen_in_the_answer(member: _Member) -> None:
    assert member.reads()
    member.sees(1)
    assert not member.reads()
    member.change()
    assert member.reads()
    member.sees()
    assert member.reads()


def test_a_change_of_what_was_read_meanwhile(member: _Member) -> None:
    member.sees(1)
    assert not member.reads()
    member.change()
    assert member.reads()


def test_without_an_answer_from_before_nothing_tells(member: _Member) -> None:
    member.sees(1)
    member.change()
    assert not member.reads()
    assert not member.reads()


def test_answers_in_any_order(member: _Member) -> None:
    member.sees(1)
    old = member.entry()
    member.change()
    assert not member.reads()
    assert not member.reads(lambda: old)
    assert member.reads()


def test_two_that_are_announced(member: _Member) -> None:
    """Which of them the answer shows is not known."""
    assert member.reads()
    member.sees(1)
    member.sees(1, 2)
    member.change()
    assert not member.reads()


@pytest.mark.parametrize("kept_before", [True, False])
def test_another_one_that_came_and_went(member: _Member, *, kept_before: bool) -> None:
    """What was there before it says nothing: the answer shows its change, and the first one is to come."""
    assert not kept_before or member.reads()
    member.sees(1)
    assert not member.reads()
    member.sees(1, 2)
    member.change()
    member.sees(1)
    assert not member.reads()
    member.change()
    assert member.reads()


def test_another_one_above_that_came_and_went(member: _Member) -> None:
    """It names no table, and may have changed this one."""
    assert member.reads()
    member.sees(1)
    member.sees(1, above=2)
    member.change()
    member.sees(1)
    assert not member.reads()
    member.change()
    assert member.reads()


def test_one_that_came_while_the_database_answered(member: _Member) -> None:
    assert member.reads()
    member.sees(1)
    member.change()

    def answer() -> Entry:
        member.sees(1, 2)
        return member.entry()

    assert not member.reads(answer)


def test_a_rename_above(member: _Member) -> None:
    """It changes no version of the table."""
    assert member.reads()
    above = member.entry().ids[-2]
    member.sees(1, scopes=frozenset([above]))
    member.change()
    assert not member.reads()


def test_on_another_connection_numbers_may_be_given_again(member: _Member) -> None:
    assert member.reads()
    member.sees(1)
    member.change()
    member.connects()
    member.sees(1)
    assert not member.reads()


def _never(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Announced, "_is_over", lambda *_: False)


@pytest.mark.parametrize("broken", [False, True])
def test_a_read_after_the_write_is_kept_without_another_look(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Its member does not look again after it has acknowledged: the answer itself shows that the write is over."""
    lake(postgres_url)
    if broken:
        _never(monkeypatch)
    with leased(postgres_url, ttl=600.0) as cached, ms.open(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        keep(cached, lambda: cached.tables.load(T))
        cache = cast(Leased, cached._cache.used)
        see, looks = cache._see, []

        def once(*arguments: Any) -> object:
            if any(arguments[1]):
                looks.append(arguments[1])
                return see(*arguments)
            return see(arguments[0], looks[-1] if looks else (), *arguments[2:])

        monkeypatch.setattr(cache._member, "_see", once)
        pool.submit(other.tables.alter, T, ms.SetComment("new")).result()
        assert wait_until(lambda: bool(looks), 5.0)
        before = cached.cache.stats()
        assert [cached.tables.load(T).comment for _ in range(3)] == ["new"] * 3
        after = cached.cache.stats()
        assert after.hits - before.hits == (0 if broken else 2)


@pytest.mark.parametrize(("ago", "wakes"), [(1.0, True), (-LONG, False)])
def test_a_read_that_is_not_kept_wakes_its_member_only_now_and_then(*, ago: float, wakes: bool) -> None:
    """Many reads meet what is announced; a look for each of them would cost more than the reads."""
    woken: list[bool] = []
    member: Any = SimpleNamespace(_clock=SYSTEM, _looked_at=SYSTEM.monotonic() - ago, look=lambda: woken.append(True))
    Member.look_soon(member)
    assert bool(woken) is wakes
