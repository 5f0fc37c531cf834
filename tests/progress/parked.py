"""A process of its own that stops right before a chosen call of its backend, until it is told to go on, or killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import metastore as ms
from tests.concurrency.workers import FORKSERVER

__all__ = ["Parked"]

WITHIN = 60.0


def _run(pipe: Connection, url: str, point: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with ms.open(url, principal="parked") as store:
        backend = store._session.backend
        original = getattr(backend, point)

        def stop(*values: Any, **options: Any) -> Any:
            delattr(backend, point)
            pipe.send("parked")
            pipe.recv()
            return original(*values, **options)

        setattr(backend, point, stop)
        try:
            answer: Any = ("returned", function(store, *arguments))
        except ms.MetastoreError as error:
            answer = ("raised", error)
        pipe.send(answer)


class Parked:
    """``function(store, *arguments)`` in a process that stands still before the first call of ``point``.

    ``function`` is of a module's level.
    """

    def __init__(self, url: str, point: str, function: Callable[..., Any], *arguments: Any) -> None:
        self._ours, theirs = FORKSERVER.Pipe()
        self._process = FORKSERVER.Process(target=_run, args=(theirs, url, point, function, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        assert self._receive() == "parked"
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # not even its threads go on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._ours.close()

    def kill(self) -> None:
        """Let it never go on."""
        self._process.kill()
        self._process.join()

    def go_on(self) -> tuple[str, Any]:
        """Let it go on; return ("returned", value) or ("raised", error)."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._ours.send("go on")
        answer: tuple[str, Any] = self._receive()
        return answer

    def _receive(self) -> Any:
        assert self._ours.poll(WITHIN), "the parked process does not answer"
        return self._ours.recv()
