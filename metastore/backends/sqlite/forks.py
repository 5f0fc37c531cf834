"""Keep forks apart from the use of SQLite, so that no child inherits a connection in use.

SQLite counts a process's locks in the memory of the process. A child that is forked while a connection is in use takes
its parent's locks for its own. It then waits for a writer that it believes to be in its own process, and writes into a
log that the parent removes.

So a fork waits until the calls under way have returned their connections, and new calls wait for the fork. After
``PATIENCE`` the fork continues anyway, and the child learns of it (:meth:`Forks.check`).
"""

from __future__ import annotations

import threading
from typing import Final

from metastore.block import Block
from metastore.clock import SYSTEM
from metastore.errors import BackendRefused

PATIENCE: Final = 10.0
"""How long a fork waits for the calls under way (seconds): a long read, or a write that waits for another process."""
_STEP: Final = 0.0005


class Forks:
    """The module's docstring describes it. There is one for the process, since SQLite has one memory for all files."""

    def __init__(self) -> None:
        self._carried = False
        self._begin()

    def _begin(self) -> None:
        self._uses: dict[Block, int] = {}
        """The thread of each block that has a connection."""
        self._forking: set[int] = set()
        self._mutex = threading.Lock()
        self._over = threading.Event()

    def enter(self, use: Block) -> None:
        """Note that a block begins to use a connection in this thread. Wait while another thread forks."""
        thread = threading.get_ident()
        while True:
            self._uses[use] = thread  # before the check, so that a fork that is not visible yet sees this use
            # a thread that forks, or has another connection, must not wait for the fork, which waits for the thread
            if not self._forking or thread in self._forking or self._threads().count(thread) > 1:
                return
            self.leave(use)
            self._over.wait(PATIENCE)

    def leave(self, use: Block) -> None:
        """Note that a block has returned its connection."""
        self._uses.pop(use, None)

    def _threads(self) -> list[int]:
        """Return the thread of each connection in use. A block that an interrupt has ended does not count."""
        uses = list(self._uses.items())  # copied in one step, because other threads change it
        for use, _ in uses:
            if not use.runs:
                self.leave(use)
        return [thread for use, thread in uses if use.runs]

    def before(self) -> None:
        """Let no connection be lent from now on, and wait for those of other threads.

        (A connection of this thread cannot be returned meanwhile.)
        """
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
        """Begin again; note whether the child inherited a connection in use."""
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
