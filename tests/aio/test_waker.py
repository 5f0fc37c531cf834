"""How a task waits in a lane: each wake ends one wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from metastore.aio import port
from metastore.aio.port import _TaskWaker


class _Waits:
    """In the place of a task's core: it counts how often the task would give the loop to others."""

    def __init__(self) -> None:
        self.waits = 0

    def wait(self, _: Any) -> None:
        self.waits += 1


def test_a_wake_ends_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lost in a batch waits again: a wait that still ended by the first wake would never let the loop go on."""

    async def main() -> None:
        core: Any = _Waits()
        monkeypatch.setattr(port, "current", lambda: core)
        waker = _TaskWaker()
        waker.wake()
        assert waker.wait(60.0)
        assert core.waits == 0
        assert not waker.wait(60.0)
        assert core.waits == 1

    asyncio.run(main())
