"""The async store's backend is what the backend behind it is, on each version of Python."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import metastore as ms
from metastore.aio.port import AioBackend
from metastore.aio.threads import Threads
from metastore.backends.sql.limits import Limits
from metastore.port.backend import Embedded
from metastore.port.batches import Batches
from metastore.port.members import Announces


@pytest.mark.parametrize("protocol", [Announces, Batches, Embedded])
def test_what_the_backend_can_the_door_can(url: str, protocol: Any) -> None:
    """From Python 3.12 on, isinstance looks for a protocol's names without ``__getattr__``; this asks as it does."""
    with ms.open(url) as store:
        backend = store._session.backend
        door = AioBackend(backend, Threads(Limits(1, None)))
        names = [name for name in vars(protocol) if name[0] != "_"]
        assert names
        for one in (backend, door):
            there = all(_has(one, name) for name in names)
            assert there == isinstance(backend, protocol)


def _has(value: object, name: str) -> bool:
    return inspect.getattr_static(value, name, None) is not None
