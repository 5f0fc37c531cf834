"""A victim whose every step can be preceded by somebody else's, and what its attempts lost to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

import metastore as ms
from metastore.retry.policy import Attempt

__all__ = ["CAS", "EVERYWHERE", "Lost", "announces", "before", "without_helping"]

CAS = ("commit", "help", "write_together")
"""The calls of a backend that compare and swap."""
EVERYWHERE = (*CAS, "write_down", "pending", "by_id", "resolve", "find_below")
"""All calls that an alter makes."""


class Lost:
    """A hook that keeps what the attempts lost to."""

    def __init__(self) -> None:
        self.causes: list[str] = []

    def __call__(self, attempt: Attempt) -> None:
        if attempt.cause is not None:
            self.causes.append(attempt.cause)


@contextmanager
def before(
    store: ms.Store, action: Callable[[], object], *, calls: tuple[str, ...] = CAS, times: int | None = None
) -> Iterator[list[str]]:
    """Let ``action`` happen right before each of the store's next ``calls``; give the list of these."""
    backend = store._session.backend
    seen: list[str] = []

    def call(name: str, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if times is None or len(seen) < times:
            seen.append(name)
            action()
        return original(*arguments, **options)

    with ExitStack() as stack:
        for name in (name for name in calls if hasattr(backend, name)):
            setattr(backend, name, partial(call, name, getattr(backend, name)))
            stack.callback(delattr, backend, name)
        yield seen


def announces(store: ms.Store, entity: ms.Entity) -> None:
    """Let the store believe that the entity is hot, however slow the machine: its next change is announced at once."""
    hot = store._session.hot
    hot.note(entity.id, (entity.kind, entity.names))
    hot._until.set(entity.id, math.inf)


def without_helping(patch: pytest.MonkeyPatch) -> None:
    """Never announce a change: plain compare-and-swap with retries."""
    patch.setattr("metastore.managers.attempts.alter.Merge", lambda *_, **__: None)
