"""The time of an iteration over what a search finds."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

import metastore as ms
from metastore.operation.timed import stepping


def test_nothing_is_yielded_after_the_time_of_the_search() -> None:
    """Also what was found by then: a database may answer late."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    session = cast(Any, SimpleNamespace(clock=clock, outer=None, policy=SimpleNamespace(deadline=60.0)))

    def found() -> Iterator[int]:
        yield 1
        clock.now = 10.0
        yield 2

    steps = stepping(session, found(), ends=5.0)
    assert next(steps) == 1
    with pytest.raises(ms.DeadlineExceeded, match="search less, or longer"):
        next(steps)
