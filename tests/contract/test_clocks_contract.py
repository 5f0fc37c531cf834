"""What every store promises when the database's clock is set back: what was noted before blocks nobody for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import metastore as ms
from metastore.clock import Clock
from metastore.port.backend import DRIFT
from metastore.port.writes import Place
from tests.contract.ground import Ground, exclusive, guards_of
from tests.contract.intents import announce, committed, conflict, eventually, freeze, mark, new_id, unmarked

HOUR = 3_600_000_000
X = ms.SetComment("x")
SetBack = Callable[[Ground, int], None]

_LATER = (
    """UPDATE guard SET marked_at = marked_at + %(by)s, marked_until = marked_until + %(by)s,
    quiet_until = quiet_until + %(by)s, dropped_at = dropped_at + %(by)s""",
    "UPDATE info SET writer = 99, forgotten = forgotten + %(by)s",
    "UPDATE operation SET time = time + %(by)s, deadline = deadline + %(by)s",
)


@dataclass(frozen=True)
class _Shifted(Clock):
    """A wall clock that is some microseconds off."""

    by: int = 0

    def micros(self) -> int:
        return super().micros() + self.by


@pytest.fixture
def set_back(url: str) -> SetBack:
    """Give a function that sets the database's clock back by some microseconds.

    A server's clock stays: all that was noted by it moves ahead, which comes to the same.
    """

    def embedded(ground: Ground, by: int) -> None:
        backend: Any = ground.backend
        backend._clock = _Shifted(backend._clock.by - by if isinstance(backend._clock, _Shifted) else -by)
        if url.startswith("sqlite"):
            backend._group._clock = backend._clock  # of those whose changes share a transaction

    def server(_: Ground, by: int) -> None:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            for text in _LATER:
                connection.execute(text, {"by": by})

    return server if url.startswith("postgresql") else embedded


def id_at(micros: int) -> UUID:
    """Return an operation id that was made at a time."""
    kept = new_id().int & (1 << 80) - 1
    return UUID(int=(micros // 1000) << 80 | kept)


class TestMarks:
    def test_the_others_turn_is_no_longer_than_it_may_be(self, ground: Ground, set_back: SetBack) -> None:
        committed_mark = mark(ground, ground.two)
        assert ground.backend.unmark(ground.two.id, committed_mark)
        set_back(ground, HOUR)
        assert ground.backend.marked([ground.two.id]) == []
        assert ground.store.schemas.rename("m.c.two", "three", deadline=5).name == "three"
        assert ground.backend.unmark(ground.one.id, mark(ground, ground.one))
        set_back(ground, HOUR)
        freeze(ground, ground.one)

    def test_in_a_batch(self, ground: Ground, set_back: SetBack) -> None:
        """The general statement asks whose turn it is as well."""
        assert ground.backend.unmark(ground.two.id, mark(ground, ground.two))
        set_back(ground, HOUR)
        writes = (
            exclusive(ground.two, place=Place(ground.catalog.id, "three", "three", fold=False)),
            exclusive(ground.one, in_use=False),
        )
        committed(ground.send(*writes, guards=guards_of(ground.catalog)))

    @pytest.mark.parametrize("announced", [mark, freeze])
    def test_a_dead_owner_s_mark_is_cleared(self, ground: Ground, set_back: SetBack, announced: Any) -> None:
        """Its commit, if it was not dead, finds no mark."""
        own = announced(ground, ground.two, seconds=1.0)
        set_back(ground, HOUR)
        assert ground.store.schemas.alter("m.c.two", X, deadline=5).comment == "x"
        assert unmarked(ground, ground.two)
        fresh = ground.store.schemas.load("m.c.two")
        late = exclusive(fresh, place=Place(ground.catalog.id, "late", "late", fold=False))
        conflict(ground.send(late, operation_id=own, held=ground.two.id), "marked", "ancestor")

    def test_a_little_is_no_matter(self, ground: Ground, set_back: SetBack) -> None:
        """A clock that is corrected by a second takes no mark from its owner."""
        own = mark(ground, ground.two, seconds=60.0)
        set_back(ground, 1_000_000)
        assert not ground.backend.clear(ground.two.id, own)
        (found,) = ground.backend.marked([ground.two.id])
        assert found.mark == own
        assert found.seconds > 50


class TestForgotten:
    def test_ids_are_accepted_again(self, ground: Ground, set_back: SetBack) -> None:
        """gc went ahead with the clock. One call is refused; a minute later ids are accepted again."""
        ground.backend.forget(ground.backend.now())
        set_back(ground, 24 * HOUR)
        with pytest.raises(ms.InvalidArgument, match="take a new one"):
            ground.store.schemas.alter("m.c.two", X, operation_id=id_at(ground.backend.now() + DRIFT))
        lowered = ground.backend.now()
        eventually(lambda: ground.backend.now() > lowered + 2000)  # an id counts in milliseconds
        own = id_at(ground.backend.now() + DRIFT)
        assert ground.store.schemas.alter("m.c.two", X, operation_id=own).version == 2
        assert ground.store.schemas.alter("m.c.two", X, operation_id=own).version == 2

    def test_what_was_forgotten_stays_refused(self, ground: Ground, set_back: SetBack) -> None:
        """The bound is lowered to the clock, not below the ids that were in use before."""
        old = id_at(ground.backend.now())
        ground.backend.forget(ground.backend.now())
        before = ground.backend.now()
        set_back(ground, 24 * HOUR)
        ground.backend.forget(0)
        with pytest.raises(ms.InvalidArgument, match="take a new one"):
            ground.store.schemas.alter("m.c.two", X, operation_id=old)
        with pytest.raises(ms.InvalidArgument, match="take a new one"):
            ground.store.schemas.alter("m.c.two", X, operation_id=id_at(min(before, ground.backend.now())))

    def test_a_legal_bound_is_never_lowered(self, ground: Ground) -> None:
        now = ground.backend.now()
        ground.backend.forget(now)
        ground.backend.forget(0)
        with pytest.raises(ms.InvalidArgument, match="take a new one"):
            ground.store.schemas.alter("m.c.two", X, operation_id=id_at(now - 1000))

    def test_gc_takes_the_earlier_of_two_clocks(self, ground: Ground) -> None:
        """A server's clock that is ahead neither ends the retention early, nor forgets ids that are in use."""
        session = ground.store._session
        backend = session.backend

        class Ahead:
            def now(self) -> int:
                return backend.now() + 24 * HOUR

            def __getattr__(self, name: str) -> Any:
                return getattr(backend, name)

        session.backend = Ahead()
        try:
            assert ground.store.gc(retention=timedelta(hours=1)) == ms.Collected(0, 0, 0)
        finally:
            session.backend = backend
        assert ground.store.schemas.restore("m.c.old").id == ground.old.id
        assert ground.store.schemas.alter("m.c.two", X, operation_id=new_id()).version == 2


def test_an_intent_is_applied_all_the_same(ground: Ground, set_back: SetBack) -> None:
    announce(ground, ground.two, "before")
    set_back(ground, HOUR)
    ground.store.schemas.alter("m.c.two", ms.SetProperty("k", "v"), deadline=5)
    assert ground.store.schemas.load("m.c.two").comment == "before"
