"""A tree of read-write locks in this process.

A call locks the last node of a path in its mode, and all above for reading.

A thread that holds a node may take it again, also for reading while it writes. If it asks to write a node that it only
reads, InvalidArgument is raised: two such threads would wait for each other for ever. A node exists only while a thread
uses it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from metastore.bridge.section import Mode
from metastore.clock import Clock
from metastore.errors import DeadlineExceeded, InvalidArgument
from metastore.names import format_path

__all__ = ["Tree"]


class _Node:
    """One read-write lock. All fields change under the tree's condition."""

    def __init__(self) -> None:
        self.readers: Counter[int] = Counter()
        self.writer: int | None = None
        self.depth = 0
        self.waiting = 0
        """How many threads wait to write: new readers let them go first."""
        self.users = 0

    def take(self, thread: int, mode: Mode) -> bool:
        """Take the lock if it is free for ``thread``; return whether it was."""
        if self.writer not in (None, thread):
            return False
        if mode == "read":
            if self.waiting and self.writer is None and thread not in self.readers:
                return False
            self.readers[thread] += 1
            return True
        if self.writer != thread and any(reader != thread for reader in self.readers):
            return False
        self.writer = thread
        self.depth += 1
        return True

    def give_back(self, thread: int, mode: Mode) -> None:
        if mode == "read":
            self.readers[thread] -= 1
            if not self.readers[thread]:
                del self.readers[thread]
            return
        self.depth -= 1
        if not self.depth:
            self.writer = None


class Tree:
    """The locks of one process. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Free all locks, in a forked child: threads of its parent held them."""
        self._free = threading.Condition()
        self._nodes: dict[tuple[str, ...], _Node] = {}

    @contextmanager
    def locked(self, names: tuple[str, ...], mode: Mode, timeout: float) -> Iterator[None]:
        """Hold the lock of a path (the empty one is the root). Raises DeadlineExceeded after ``timeout`` seconds."""
        ends = self._clock.monotonic() + timeout
        with ExitStack() as held:
            for depth in range(len(names) + 1):
                held.enter_context(self._node(names[:depth], mode if depth == len(names) else "read", ends))
            yield

    @contextmanager
    def _node(self, names: tuple[str, ...], mode: Mode, ends: float) -> Iterator[None]:
        thread = threading.get_ident()
        with self._free:
            node = self._nodes.setdefault(names, _Node())
            node.users += 1
            try:
                self._wait(node, names, thread, mode, ends)
            except BaseException:
                self._leave(node, names)
                raise
        try:
            yield
        finally:
            with self._free:
                node.give_back(thread, mode)
                self._leave(node, names)
                self._free.notify_all()

    def _wait(self, node: _Node, names: tuple[str, ...], thread: int, mode: Mode, ends: float) -> None:
        if mode == "write" and node.writer != thread and thread in node.readers:
            raise InvalidArgument(
                f"this thread reads {format_path(names) or 'the root'} and asks to write it: two such threads would "
                "wait for each other for ever; take the lock for writing first"
            )
        if node.take(thread, mode):
            return
        node.waiting += mode == "write"
        try:
            while not node.take(thread, mode):
                if (left := ends - self._clock.monotonic()) <= 0 or not self._free.wait(left):
                    raise DeadlineExceeded(
                        f"the lock of {format_path(names) or 'the root'} was not free in time; "
                        "try again, or give it a longer timeout"
                    )
        finally:
            node.waiting -= mode == "write"
            self._free.notify_all()

    def _leave(self, node: _Node, names: tuple[str, ...]) -> None:
        node.users -= 1
        if not node.users and self._nodes.get(names) is node:  # in a forked child, the end of a parent's block
            del self._nodes[names]
