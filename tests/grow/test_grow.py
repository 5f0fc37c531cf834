"""The table of answers names every public method, and the store that is measured is a sound one."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from tests.bad_input.surface import EVERY
from tests.grow.__main__ import RICH, main
from tests.grow.counting import Cost, SqliteCounter, measured
from tests.grow.lines import ANSWERS, LINES
from tests.grow.report import DEADLINE, TRUSTED, Line, judged
from tests.grow.skew import Skew, fill


def test_every_method_has_a_line() -> None:
    assert {str(method) for method in EVERY} == set(LINES)


def test_a_call_that_does_not_end_in_time_breaks_its_bar() -> None:
    def said(call: str, by: str, **large: Any) -> list[str]:
        cost = Cost(5, 10, 10, 100, 1000, 0.1)
        return list(judged([Line(call, by, ANSWERS[call], cost, cost._replace(**large))], 10, RICH))

    assert said("changes for one", "narrow", blocks=1000) == []
    assert "DeadlineExceeded" in said("changes for one", "narrow", refused="DeadlineExceeded")[0]
    assert said("find a prefix", TRUSTED, seconds=DEADLINE) == []
    assert "30.6 s" in said("find a prefix", TRUSTED, seconds=DEADLINE + 0.6)[0]


def test_steps_are_counted_alike_each_time_and_an_alarm_in_a_call_is_not_a_refusal(sqlite_url: str) -> None:
    class Alarmed(SqliteCounter):
        rings = False

        def _stepped(self) -> int:
            if self.rings:
                raise TimeoutError
            return super()._stepped()

    with (counter := Alarmed()).installed(), ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        consumer = store.consumers.get("x")
        assert len({measured(counter, lambda: consumer.reset("now")).blocks for _ in range(20)}) == 1
        counter.rings = True
        with pytest.raises(ms.BackendRefused, match="interrupted"):
            measured(counter, store.secrets.scrub)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_the_short_form_keeps_the_bars(backend: str) -> None:
    assert main(["--entities", "6000", "--backend", backend, "--by", TRUSTED]) == 0


def test_what_is_filled_in_is_sound(sqlite_url: str) -> None:
    fill(sqlite_url, Skew(60))
    with ms.open(sqlite_url) as store:
        assert store.verify() == []
        assert len(store.tags.on("m.c.s.hub", kind="table")) == Skew(60).tags
