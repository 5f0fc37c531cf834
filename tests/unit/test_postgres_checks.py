"""The codes that a commit's checks raise on PostgreSQL are known as such, not as values that it refuses."""

from __future__ import annotations

import pytest

from metastore.backends.postgres.errors import CHECKS
from metastore.retry.classify import Consequence, of_sqlstate


@pytest.mark.parametrize("state", [state for state in CHECKS if state])
def test_each_is_a_check(state: str) -> None:
    assert of_sqlstate(state) is Consequence.CHECK


def test_each_check_has_a_cause() -> None:
    assert len(set(CHECKS.values())) == len(CHECKS)
