"""Every test of the contract runs on each backend in turn: the memory model is one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metastore as ms
from metastore import Store
from metastore.port.backend import Backend
from tests.aio.facade import Facade, Loop
from tests.combine.gate import always_together
from tests.contract.ground import Ground, behind, prepare


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Judge the memory model and the async API together, and the databases behind the sync one; the rest is long."""
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {})
        if "store" in chosen and (chosen["store"] == "async") != (chosen.get("url") == "memory"):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """Give an event loop, which runs in a thread."""
    running = Loop()
    yield running
    running.close()


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, url: str, loop: Loop) -> Iterator[Store]:
    """Open a store on ``url``, as the principal "tester": the sync one, and the async one behind a sync face."""
    opened = ms.open if request.param == "sync" else lambda *a, **o: Facade.open(loop, *a, **o)
    with opened(url, principal="tester") as store:
        yield store


@pytest.fixture
def backend(store: Store) -> Backend:
    """Give the port that ``store`` stands on."""
    return behind(store)


@pytest.fixture
def ground(store: Store) -> Ground:
    """Give ``store`` with a small tree in it."""
    return prepare(store)
