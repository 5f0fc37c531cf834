"""A tree of read-write locks in the memory of one server process: another server does not see it."""

from __future__ import annotations

from collections import defaultdict
from threading import Condition, Lock

from tests.bench.peers.locked import Nodes

__all__ = ["Forest", "ProcessTree"]


class _ReadWriteLock:
    """Waiting writers go before new readers."""

    def __init__(self) -> None:
        self._changed = Condition(Lock())
        self._readers, self._writing, self._waiting = 0, False, 0

    def acquire(self, *, exclusive: bool) -> int:
        waits = 0
        with self._changed:
            if exclusive:
                self._waiting += 1
                while self._writing or self._readers:
                    waits += 1
                    self._changed.wait()
                self._waiting -= 1
                self._writing = True
            else:
                while self._writing or self._waiting:
                    waits += 1
                    self._changed.wait()
                self._readers += 1
        return waits

    def release(self, *, exclusive: bool) -> None:
        with self._changed:
            if exclusive:
                self._writing = False
            else:
                self._readers -= 1
            if not self._readers:
                self._changed.notify_all()


class Forest:
    """The locks of one server, by path; made when they are first needed, and kept."""

    def __init__(self) -> None:
        self._made = Lock()
        self._locks: defaultdict[str, _ReadWriteLock] = defaultdict(_ReadWriteLock)

    def lock(self, path: str) -> _ReadWriteLock:
        """Return the lock of a node."""
        with self._made:
            return self._locks[path]


class ProcessTree:
    """One thread's view of the server's locks."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._held: list[tuple[_ReadWriteLock, bool]] = []

    def acquire(self, nodes: Nodes, *, exclusive: bool) -> int:
        waits = 0
        for node in nodes:
            alone = exclusive and node is nodes[-1]
            lock = self._forest.lock(node)
            waits += lock.acquire(exclusive=alone)
            self._held.append((lock, alone))
        return waits

    def release(self) -> None:
        while self._held:
            lock, alone = self._held.pop()
            lock.release(exclusive=alone)

    def close(self) -> None:
        """Nothing is this thread's alone."""
