"""One team of processes for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.concurrency.workers import Team


@pytest.fixture(scope="session")
def team() -> Iterator[Team]:
    """Give the processes that do jobs."""
    found = Team()
    yield found
    found.close()
