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
from tests.long import leave_out


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Judge the memory model and the async API together, and the databases behind the sync one; the rest is long."""
    leave_out(config, items, _says_what_others_say)
    for item in items:
        face, url = _variant(item)
        if face and (face == "async") != (url == "memory"):
            item.add_marker(pytest.mark.long)


def _variant(item: pytest.Item) -> tuple[str, str]:
    """Return the face of the store and its backend; empty for a test that has no such variants."""
    chosen = getattr(getattr(item, "callspec", None), "params", {})
    return (chosen["store"], chosen.get("url", "")) if "store" in chosen else ("", "")


def _says_what_others_say(item: pytest.Item) -> bool:
    """Return whether all that this variant runs is in two others.

    * The sync API on the memory model: the async one runs the same model, and the same API runs on SQLite.
    * The async API on PostgreSQL: it runs there with each request in a batch too, and what cannot travel goes alone.
    * A test of what is above the port (``each_run_on``): one more variant is enough, the one that shares least with the
      named ones. That is a batch on PostgreSQL behind the other face.
    """
    face, url = _variant(item)
    if (face, url) in {("sync", "memory"), ("async", "postgres")}:
        return True
    above = item.get_closest_marker("each_run_on")
    if not face or above is None:
        return False
    each_run = {("async" if named == "memory" else "sync", named) for named in above.args}
    return (face, url) not in each_run and (url != "combined" or face in {own for own, _ in each_run})


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
    """Give the port below ``store``."""
    return behind(store)


@pytest.fixture
def ground(store: Store) -> Ground:
    """Give ``store`` with a small tree in it."""
    return prepare(store)
