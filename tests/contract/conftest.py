"""Every test of the contract runs on each backend in turn: the memory model is one of them."""

from __future__ import annotations

import pytest

from metastore import Store
from metastore.port.backend import Backend
from tests.combine.gate import always_together
from tests.contract.ground import Ground, prepare


@pytest.fixture
def memory_url() -> str:
    """Give the URL of the memory model: each open is a store of its own."""
    return "memory://"


@pytest.fixture
def combined_url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of a fresh database on PostgreSQL, where no request goes alone: each leads a batch."""
    always_together(monkeypatch)
    return postgres_url


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("combined", marks=[pytest.mark.postgres, pytest.mark.long]),
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    """Give the URL of a fresh database, on each backend in turn."""
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen


@pytest.fixture
def backend(store: Store) -> Backend:
    """Give the port that ``store`` stands on."""
    return store._session.backend


@pytest.fixture
def ground(store: Store) -> Ground:
    """Give ``store`` with a small tree in it."""
    return prepare(store)
