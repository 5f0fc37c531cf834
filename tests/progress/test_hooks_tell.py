"""What hooks are told of an attempt: on which entity it lost, what it expected there, and who did the work at last."""

from __future__ import annotations

import metastore as ms
from metastore.retry.policy import Attempt
from tests.concurrency.checks import seed
from tests.progress.hooks import before

PATH = "lake.cat.s.t"


def test_where_an_attempt_lost(url: str) -> None:
    seed(url, PATH)
    told: list[Attempt] = []
    with ms.open(url, hooks=[told.append]) as victim, ms.open(url) as other:
        table = victim.tables.load(PATH)
        turns = iter([True])

        def foreign() -> None:
            if next(turns, False):
                other.tables.alter(PATH, ms.SetProperty("other", "1"))

        with before(victim, foreign, calls=("commit",)):
            victim.tables.alter(PATH, ms.SetProperty("victim", "1"))
    lost = [attempt for attempt in told if attempt.cause is not None]
    assert [(a.cause, a.entity_id, a.expected) for a in lost] == [("self", table.id, table.version)]
    assert [(a.cause, a.entity_id, a.expected, a.helped) for a in told[-1:]] == [(None, None, None, False)]


def test_who_did_the_work(url: str) -> None:
    """The other one applies the intent before the victim's own CAS does."""
    seed(url, PATH)
    told: list[Attempt] = []
    with ms.open(url, hooks=[told.append]) as victim, ms.open(url) as other:
        table = victim.tables.load(PATH)
        victim._session.hot.note(table.id)  # it announces at once
        turns = iter([True])

        def foreign() -> None:
            if next(turns, False):
                other.tables.alter(PATH, ms.SetProperty("other", "1"))

        with before(victim, foreign, calls=("help",)):
            victim.tables.alter(table, ms.SetProperty("victim", "1"))
    assert told[-1].cause is None
    assert told[-1].helped
