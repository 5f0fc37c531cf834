"""A short run of the oracle of rights, in memory and in SQLite; ``python -m tests.governance.oracle`` is a long one."""

from __future__ import annotations

import pytest

from tests.governance.oracle.__main__ import run


@pytest.mark.parametrize("seed", [304, 305, 314])
def test_users_see_and_do_what_the_rules_say(seed: int) -> None:
    """The first of these worlds is in SQLite, and two stores serve its users."""
    assert run(400, seed) == []
