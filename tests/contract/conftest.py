"""Every test of the contract runs on each backend in turn: the memory model is one of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import metastore as ms
from metastore import Store
from metastore.port.backend import Backend
from tests.combine.gate import always_together
from tests.contract.ground import Ground, prepare


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an empty, migrated file to copy: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "metastore.db"
    ms.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Give the URL of a fresh, migrated file."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'metastore.db')}"


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
