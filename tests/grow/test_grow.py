"""The table of answers names every public method, and the store that is measured is a sound one."""

from __future__ import annotations

from tests.bad_input.surface import EVERY
from tests.grow.lines import LINES


def test_every_method_has_a_line() -> None:
    assert {str(method) for method in EVERY} == set(LINES)
