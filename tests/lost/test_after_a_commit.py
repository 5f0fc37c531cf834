"""Nothing that a call asks after its commit makes an error of it, though the server was started again in between.

A store notices that with its next question, and then does not know which database it is. So each call that writes is
made on a database whose identity is unknown from the commit on, and which is away when it is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metastore as ms
from metastore.backends.postgres.backend import PostgresBackend
from metastore.port.batches import Written
from metastore.port.commit import Committed
from metastore.port.records import Origin
from tests.lost.calls import CALLS
from tests.servers.postgres import Databases

ONE = [name for name, call in CALLS.items() if not call.in_parts]


class Restarts:
    """While they are on, the server is started again after each commit."""

    def __init__(self) -> None:
        self.on, self.after = False, list[str]()
        """The commits that one came after."""


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> Restarts:
    found, identify = Restarts(), PostgresBackend.identify

    def followed(name: str, send: Callable[..., Any]) -> Callable[..., Any]:
        def sent(backend: PostgresBackend, *arguments: Any) -> Any:
            outcome = send(backend, *arguments)
            if found.on and isinstance(outcome, Committed | Written):
                found.after.append(name)
                backend._identity = None
            return outcome

        return sent

    def away(backend: PostgresBackend) -> Origin:
        if found.on and found.after:
            raise ms.BackendUnavailable("the server is starting")
        return identify(backend)

    for name in ("commit", "help", "write_together"):
        monkeypatch.setattr(PostgresBackend, name, followed(name, getattr(PostgresBackend, name)))
    monkeypatch.setattr(PostgresBackend, "identify", away)
    return found


@pytest.fixture(scope="module")
def opened(postgres_databases: Databases, postgres_template: str) -> Iterator[ms.Store]:
    """Open one store for all calls: each has a lake of its own."""
    url = postgres_databases.create_database(template=postgres_template.rpartition("/")[2])
    with ms.open(url, deadline=2.0) as store:
        yield store
    postgres_databases.drop_database(url)


@pytest.mark.parametrize("name", ONE)
def test_a_commit_is_no_error(opened: ms.Store, restarts: Restarts, name: str) -> None:
    call, lake = CALLS[name], f"x{ONE.index(name)}"
    store, made = opened.bind(principal=call.by or lake), call.made(opened, lake)
    named = {} if call.held is None else {"held": call.held(store, lake, made)}
    restarts.on = True
    call.act(store, lake, made, **named)
    assert restarts.after or "lease" in name or "consumer" in name or "pin" in name
