"""One call of a client: its line in the journal, and how a thread or a task makes the call.

The sync and the async store have the same managers. So a call is a function of a store; a task awaits what it returns.
Only blocks (transactions, freezes, leases) are written twice.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["HELD", "Notes", "Request", "make", "make_async"]

Step = tuple[str, str, Callable[[Any], Any]]
"""Of a block: what it does, to which path, and the call on its transaction."""
HELD: Final = 1.0
"""The time to live of marks, leases and drops in steps: what a killed client leaves is over so soon (seconds)."""


@dataclass(frozen=True)
class Request:
    """One call. ``block``: what its steps are made in; None: it is ``send`` alone."""

    action: str
    path: str | None
    send: Callable[[Any], Any] | None = None
    to: str | None = None
    entity_id: int | None = None
    paths: tuple[str, ...] = ()
    block: str | None = None
    steps: tuple[Step, ...] = ()
    user: str | None = None
    after: str | None = None
    """Of the change feed: the position behind which it reads on."""
    operation_id: str | None = None
    works: float = 0.0
    """How long the function of a transaction works before it ends (seconds)."""

    def as_json(self) -> dict[str, Any]:
        """Return what the journal says of it before it begins."""
        steps = [[what, path] for what, path, _ in self.steps]
        every: dict[str, Any] = {
            "action": self.action,
            "path": self.path,
            "to": self.to,
            "id": self.entity_id,
            "user": self.user,
            "after": self.after,
        }
        every |= {"timeout": HELD if self.block in ("freeze", "lease") else None}
        every |= {"operation": self.operation_id, "paths": self.paths, "steps": steps}
        return {name: value for name, value in every.items() if value}


@dataclass
class Notes:
    """What a call tells besides its answer."""

    runs: int = 0
    """How often the function of a transaction was called."""
    held: list[int] = field(default_factory=list)
    """When the block of a freeze began and ended (monotonic nanoseconds)."""

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in {"runs": self.runs, "held": self.held}.items() if value}


def make(store: Any, request: Request, notes: Notes) -> Any:
    """Make a call in this thread."""
    if request.block is None:
        assert request.send is not None
        return request.send(store)
    if request.block == "run":
        return store.run(lambda tx: _steps(tx, request, notes))
    if request.block == "freeze":
        with store.schemas.exclusive(request.path, ttl=HELD, timeout=HELD) as tx:
            notes.held.append(time.monotonic_ns())
            answers = _steps(tx, request, notes)
            notes.held.append(time.monotonic_ns())
        return answers
    with store.leases.acquire("compaction", ttl=HELD, timeout=HELD) as lease:
        return [send((store, lease)) for _, _, send in request.steps]


def _steps(tx: Any, request: Request, notes: Notes) -> list[Any]:
    notes.runs += 1
    answers = [send(tx) for _, _, send in request.steps]
    time.sleep(request.works)
    return answers


async def make_async(store: Any, request: Request, notes: Notes) -> Any:
    """Make a call in this task."""
    import asyncio

    async def steps(tx: Any) -> list[Any]:
        notes.runs += 1
        answers = [await send(tx) for _, _, send in request.steps]
        await asyncio.sleep(request.works)
        return answers

    if request.block is None:
        assert request.send is not None
        sent: Awaitable[Any] = request.send(store)
        return await sent
    if request.block == "run":
        return await store.run(steps)
    if request.block == "freeze":
        async with store.schemas.exclusive(request.path, ttl=HELD, timeout=HELD) as tx:
            notes.held.append(time.monotonic_ns())
            answers = await steps(tx)
            notes.held.append(time.monotonic_ns())
        return answers
    async with store.leases.acquire("compaction", ttl=HELD, timeout=HELD) as lease:
        return [await send((store, lease)) for _, _, send in request.steps]
