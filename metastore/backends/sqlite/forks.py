"""Keep forks apart from the use of SQLite: no child inherits a connection that is in use.

The library counts a process's locks in the process's own memory. A child that is forked while a connection is in use
takes the parent's locks for its own. Then it waits for a writer that it believes to be in its own process, and writes
into a log that the parent removes.

So a fork waits until the calls under way have given their connections back, and calls that begin meanwhile wait for the
fork. After ``PATIENCE`` the fork goes on without them, and its child is told (:meth:`Forks.check`).
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import ref

from metastore.clock import SYSTEM
from metastore.errors import BackendRefused

__all__ = ["FORKS", "PATIENCE", "Forks", "Use"]

PATIENCE: Final = 10.0
"""How long a fork waits for the calls under way (seconds): a long read, or a write behind another process's."""
_STEP: Final = 0.0005


class Use:
    """A thread's use of one connection. One that an interrupt leaves behind ends with its call's frame."""

    __slots__ = ("__weakref__", "shown", "thread")

    def __init__(self, uses: set[ref[Use]]) -> None:
        self.thread = threading.get_ident()
        self.shown = ref(self, uses.discard)


class Forks:
    """See the module. One for the process, since SQLite has one memory for all files."""

    def __init__(self) -> None:
        self._carried = False
        self._begin()

    def _begin(self) -> None:
        self._uses = set[ref[Use]]()
        self._forking: set[int] = set()
        self._mutex = threading.Lock()
        self._over = threading.Event()

    def enter(self) -> Use:
        """Return the use of a connection by this thread, which begins now; wait while another thread forks."""
        use = Use(self._uses)
        while True:
            self._uses.add(use.shown)  # before the look: a fork that does not show yet sees this use
            # a thread that forks, or has another connection, must not wait for a fork, which waits for it
            if not self._forking or use.thread in self._forking or self._threads().count(use.thread) > 1:
                return use
            self._uses.discard(use.shown)
            self._over.wait(PATIENCE)

    def leave(self, use: Use) -> None:
        """End a use: the connection was given back."""
        self._uses.discard(use.shown)

    def _threads(self) -> list[int]:
        """Return the thread of each connection in use. (To copy a set is atomic.)"""
        return [use.thread for shown in list(self._uses) if (use := shown()) is not None]

    def before(self) -> None:
        """Let no connection be lent from now on; wait for those of other threads. (The own ones cannot come back.)"""
        me = threading.get_ident()
        with self._mutex:
            self._over.clear()
            self._forking.add(me)
        ends = SYSTEM.monotonic() + PATIENCE
        while any(thread != me for thread in self._threads()) and SYSTEM.monotonic() < ends:
            SYSTEM.sleep(_STEP)

    def after_in_parent(self) -> None:
        """Let connections be lent again, unless another thread forks too."""
        with self._mutex:
            self._forking.discard(threading.get_ident())
            if not self._forking:
                self._over.set()

    def after_in_child(self) -> None:
        """Begin again; note whether a connection came along."""
        self._carried = self._carried or bool(self._threads())
        self._begin()

    def check(self) -> None:
        """Raise BackendRefused in a process that inherited a connection in use."""
        if self._carried:
            raise BackendRefused(
                "this process was forked while its parent used SQLite, which now mistakes the parent's locks for its "
                "own; fork while no call is under way, or start processes by spawn or forkserver"
            )


FORKS: Final = Forks()
