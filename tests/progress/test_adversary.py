"""The adversary: a whole foreign commit before each step of the victim. With helping it ends all the same."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from uuid import UUID

import pytest

import metastore as ms
from metastore.retry.reactions import REACTIONS, Reaction
from tests.concurrency.checks import seed, violations
from tests.progress.hooks import CAS, EVERYWHERE, Lost, announces, before, without_helping

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATH = "lake.cat.s.t"


class Adversary:
    """Writes the table, as often as it is asked to; each time a whole operation of its own."""

    def __init__(self, store: ms.Store, *, announced: bool) -> None:
        self.store, self._announced = store, announced
        self._numbers = itertools.count()
        self.commits = 0

    def __call__(self) -> None:
        table = self.store.tables.load(PATH)
        if self._announced:
            announces(self.store, table)
        else:
            self.store._session.hot.cool(table.id)
        self.store.tables.alter(PATH, ms.SetProperty("adversary", str(next(self._numbers))))
        self.commits += 1


@pytest.mark.parametrize("calls", [CAS, EVERYWHERE], ids=["each CAS", "each call"])
@pytest.mark.parametrize("announced", [False, True], ids=["fast", "announced"])
@pytest.mark.parametrize("held", [False, True], ids=["by path", "by entity"])
def test_the_victim_ends(url: str, held: bool, announced: bool, calls: tuple[str, ...]) -> None:
    """Invariant 7: one failure on the fast path, or two in batches, then at most two."""
    seed(url, PATH)
    lost = Lost()
    with ms.open(url, principal="victim", hooks=[lost]) as victim, ms.open(url, principal="other") as other:
        table = victim.tables.load(PATH)
        adversary = Adversary(other, announced=announced)
        for n in range(5):
            lost.causes.clear()
            victim._session.hot.cool(table.id)  # the worst case: on the fast path first
            with before(victim, adversary, calls=calls) as steps:
                found = victim.tables.alter(table if held else PATH, ms.SetProperty("victim", str(n)))
            assert len(lost.causes) <= (4 if "write_together" in steps else 3), (lost.causes, steps)
            if "write_down" in steps:
                assert len(steps[steps.index("write_down") :]) <= 1 + 2 * 3, (lost.causes, steps)
            assert found.properties["victim"] == str(n)
            (mine,) = [v for v in victim.tables.history(PATH) if v.entity and v.version == found.version]
            assert mine.principal == "victim"
            assert [c.to_json() for c in mine.changes] == [{"key": "victim", "value": str(n)}]
        assert adversary.commits >= 10
        assert len(list(victim.tables.history(PATH))) == 1 + 5 + adversary.commits
    assert violations(url) == []


@pytest.mark.parametrize("announced", [False, True], ids=["fast", "announced"])
def test_without_helping_it_starves(url: str, announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the same adversary, and plain compare-and-swap."""
    without_helping(monkeypatch)
    seed(url, PATH)
    lost = Lost()
    with ms.open(url, deadline=1.0, hooks=[lost]) as victim, ms.open(url) as other:
        adversary = Adversary(other, announced=announced)
        with before(victim, adversary), pytest.raises((ms.DeadlineExceeded, ms.OutcomeUnknown)):
            victim.tables.alter(PATH, ms.SetProperty("victim", "x"))
        assert len(lost.causes) > 3
        assert "victim" not in victim.tables.load(PATH).properties


def test_two_victims_of_one_adversary(url: str) -> None:
    """A helper applies the other's intent too, and each gets its own result."""
    seed(url, PATH)
    with ms.open(url, principal="a") as a, ms.open(url, principal="b") as b, ms.open(url, principal="c") as c:
        adversary = Adversary(c, announced=False)
        lost = Lost()
        b._session.policy = type(b._session.policy)(hooks=(lost,))
        inner: list[ms.Table] = []

        def second() -> None:
            if not inner:
                with before(b, adversary):
                    inner.append(b.tables.alter(PATH, ms.SetProperty("b", "1")))

        announces(a, a.tables.load(PATH))
        with before(a, second, calls=("help",)):
            found = a.tables.alter(PATH, ms.SetProperty("a", "1"))
        assert len(lost.causes) <= 3
        by = {v.principal: v.version for v in a.tables.history(PATH) if v.principal in ("a", "b")}
        assert by == {"a": found.version, "b": inner[0].version}
        assert found.version < inner[0].version  # the older intent first
        assert "b" not in found.properties
    assert violations(url) == []


@pytest.mark.parametrize("verb", ["rename", "drop"])
def test_an_exclusive_victim_marks(url: str, verb: str) -> None:
    """6a: it loses once, marks, and then the adversary steps aside and says for whom."""
    seed(url, PATH)
    lost = Lost()
    operation = ms.new_operation_id()
    blocked: list[UUID | None] = []
    with ms.open(url, hooks=[lost]) as victim, ms.open(url) as other:
        adversary = Adversary(other, announced=False)

        def act() -> None:
            if adversary.commits:
                adversary.store = other.bind(deadline=0.2)
            try:
                adversary()
            except ms.ScopeFrozen as error:
                blocked.append(error.operation)
            except (ms.DeadlineExceeded, ms.OutcomeUnknown):  # on a busy machine, before it meets the mark
                blocked.append(None)

        began = time.monotonic()
        with before(victim, act):
            if verb == "rename":
                victim.tables.rename(PATH, "u", operation_id=operation)
            else:
                victim.tables.drop(PATH, operation_id=operation)
        assert len(lost.causes) <= 2, lost.causes
        assert time.monotonic() - began < 15
        assert adversary.commits == 1
        assert blocked in ([operation], [None])
        assert victim.outcome(operation).state == "committed"
    assert violations(url) == []


def test_without_marks_it_starves(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    for cause in ("self", "busy"):
        monkeypatch.setitem(REACTIONS, cause, replace(REACTIONS[cause], exclusive=Reaction.BACK_OFF))
    seed(url, PATH)
    lost = Lost()
    with ms.open(url, deadline=1.0, hooks=[lost]) as victim, ms.open(url) as other:
        starved = pytest.raises((ms.DeadlineExceeded, ms.OutcomeUnknown))
        with before(victim, Adversary(other, announced=False)), starved:
            victim.tables.rename(PATH, "u")
        assert len(lost.causes) > 3
        assert victim.tables.exists(PATH)
