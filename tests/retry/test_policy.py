"""The policy: a frozen value, and the bounds of full jitter."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from metastore.clock import SYSTEM
from metastore.retry.policy import Attempt, RetryPolicy


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    policy = RetryPolicy(base=0.01, cap=0.1)
    assert [policy.ceiling(n) for n in range(1, 7)] == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.1, 0.1])


def test_the_ceiling_of_a_very_late_attempt_is_the_cap() -> None:
    assert RetryPolicy(base=0.01, cap=0.1).ceiling(10**9) == 0.1


def test_the_defaults_are_those_of_the_store() -> None:
    policy = RetryPolicy()
    assert (policy.attempts, policy.deadline) == (None, 30.0)
    assert 0 < policy.base <= policy.cap <= 1


@pytest.mark.parametrize("value", [RetryPolicy(), Attempt("it", None, 1, "name", 0.5, 0.1)], ids=["policy", "attempt"])
def test_frozen(value: Any) -> None:
    for name in ("deadline", "number", "elapsed"):
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            setattr(value, name, 7)
    assert hash(value) == hash(value)


def test_the_systems_jitter_keeps_its_bounds_and_uses_them() -> None:
    drawn = [SYSTEM.uniform(0.0, 0.25) for _ in range(2000)]
    assert all(0.0 <= number <= 0.25 for number in drawn)
    assert min(drawn) < 0.02
    assert max(drawn) > 0.23
