"""A primary dies with commits that no replica has: no acknowledged commit is lost.

Commits wait for the synchronous replica. Here the replica stops receiving, the test cancels the waits one by one, and
then the primary is gone. A cancelled wait is not a confirmation: PostgreSQL says so in a warning, and the commit may be
lost.
"""

from __future__ import annotations

import signal
import time
from typing import Final

import psutil
import psycopg

from tests.progress.replica import Replica
from tests.servers.postgres import PostgresServer

__all__ = ["lose"]

_SECONDS: Final = 2.0
"""How long commits wait in vain, and are cancelled."""
_CANCEL: Final = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def lose(leader: PostgresServer, replica: Replica) -> None:
    """Stop the replica, cancel those that wait for it, kill the primary, and let the replica take its place."""
    receiver = _receiver(replica)
    receiver.suspend()
    with psycopg.connect(leader.dsn(), autocommit=True) as connection:
        ends = time.monotonic() + _SECONDS
        while time.monotonic() < ends:
            connection.execute(_CANCEL)
            time.sleep(0.05)
    leader.kill()
    receiver.send_signal(signal.SIGTERM)  # it ends before it reads what is still on its way
    receiver.resume()
    replica.promote()


def _receiver(replica: Replica) -> psutil.Process:
    """Return the process of the replica that receives the log."""
    return next(one for one in psutil.Process(replica.pid).children() if "walreceiver" in " ".join(one.cmdline()))
