"""The fixtures of the async API's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def memory_url() -> str:
    """Give the URL of the memory model: each open is a store of its own."""
    return "memory://"


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    """Give the URL of a fresh database, on each backend in turn."""
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen
