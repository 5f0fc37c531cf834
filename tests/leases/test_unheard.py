"""An acquisition whose answer was lost, while the database is away again when its events are read."""

from __future__ import annotations

from typing import Any

from metastore.backends.memory.backend import MemoryBackend
from metastore.errors import BackendUnavailable
from metastore.port.commit import Unknown
from tests.operation.ground import StillClock, store_on


class _Away:
    """A database that loses the first answer to an acquisition, and then fails to read the events once."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._backend, self._fails = backend, False
        self.leases = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend if hasattr(self._backend, name) else self._backend.leases, name)

    def take(self, take: Any) -> Any:
        answer = self._backend.leases.take(take)
        self._fails = True
        return Unknown("the network is down") if self._backend.steps(take.operation_id) else answer

    def steps(self, operation_id: Any) -> Any:
        if self._fails:
            self._fails = False
            error = BackendUnavailable("the network is down")
            error.transient = True
            raise error
        return self._backend.steps(operation_id)


def test_a_lease_is_not_refused_because_the_call_holds_it_itself() -> None:
    clock = StillClock()
    store = store_on(_Away(MemoryBackend(clock)), clock)
    assert store.leases.acquire("work").token == 1
