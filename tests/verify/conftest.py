"""Databases to damage."""

from __future__ import annotations

import pytest

from tests.verify.planting import build


@pytest.fixture
def built(url: str) -> tuple[str, dict[str, int]]:
    """Give a database with a little of everything, and the ids of what is in it."""
    return url, build(url)
