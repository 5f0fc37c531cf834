"""gc inside a server: of all servers of a database, one at a time runs it.

That server holds a lease as long as it lives; it runs gc when it gets the lease, and every hour from then on. A server
that is killed loses the lease when its ttl is over; then another server continues. Each batch checks the lease.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from metastore.errors import LeaseHeld, LeaseLost, MetastoreError
from metastore.leases.lease import Lease

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["LEASE", "Collector"]

LEASE: Final = "metastore-gc"
"""The lease of the server that runs gc."""
_AFTER_AN_ERROR: Final = 300.0
"""How long after an error gc is tried again (seconds)."""
_PATIENCE: Final = 1.0
"""How long a server that stops waits for the batch in flight (seconds). The process may end during the batch."""
_LOG = logging.getLogger("metastore.serve")


class Collector:
    """Runs gc until it is closed: ``with Collector(store, retention): …``. Close it before its store.

    ``every``: the time from the end of one gc to the start of the next (seconds). ``ttl``: how long after a server's
    last renewal another one may take over; the others try twice in this time.
    """

    def __init__(self, store: Store, retention: timedelta, *, every: float = 3600.0, ttl: float = 30.0) -> None:
        self._store, self._retention, self._every, self._ttl = store, retention, every, ttl
        self._closing = threading.Event()
        self._lease: Lease | None = None
        self._thread = threading.Thread(target=self._work, name="metastore-gc", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._lease is not None:
            self._lease.lose("its server stops")
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        while not self._closing.is_set():
            pause = _AFTER_AN_ERROR
            try:
                self._run()
            except (LeaseHeld, LeaseLost):  # another server runs gc, or this one stops
                pause = self._ttl / 2
            except MetastoreError as error:
                if not self._closing.is_set():
                    _LOG.warning("gc stopped, and is tried again in %d s; --no-gc turns it off: %s", pause, error)
            except Exception:  # noqa: BLE001  (the server goes on without it, and tries again)
                _LOG.exception("gc stopped, and is tried again in %d s", pause)
            self._closing.wait(pause)

    def _run(self) -> None:
        """Hold the lease, and run gc from time to time, until the lease is lost. Raises the errors of gc."""
        with self._store.leases.acquire(LEASE, ttl=self._ttl) as lease:
            self._lease = lease
            if self._closing.is_set():  # __exit__ may have run before this thread had the lease
                return
            while True:
                done = self._store.gc(retention=self._retention, lease=lease)
                _LOG.info(
                    "gc deleted %d entities, %d versions, %d operations", done.entities, done.versions, done.operations
                )
                if lease.lost.wait(self._every):
                    return
