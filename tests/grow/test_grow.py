"""The table of answers names every public method, and the store that is measured is a sound one."""

from __future__ import annotations

import pytest

import metastore as ms
from tests.bad_input.surface import EVERY
from tests.grow.__main__ import main
from tests.grow.lines import LINES
from tests.grow.report import TRUSTED
from tests.grow.skew import Skew, fill


def test_every_method_has_a_line() -> None:
    assert {str(method) for method in EVERY} == set(LINES)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_the_short_form_keeps_the_bars(backend: str) -> None:
    assert main(["--entities", "6000", "--backend", backend, "--by", TRUSTED]) == 0


def test_what_is_filled_in_is_sound(sqlite_url: str) -> None:
    fill(sqlite_url, Skew(60))
    with ms.open(sqlite_url) as store:
        assert store.verify() == []
        assert len(store.tags.on("m.c.s.hub", kind="table")) == Skew(60).tags
