"""Hear hints about new changes. After a commit, a process sends one to the followers of the feed.

Correctness does not depend on hints: without them, a follower reads once a second. So commits themselves send none,
because their NOTIFY would make them wait for each other. A follower has its own session, whose name marks it as a
follower. Behind a pooler no such session exists, so a follower reads at intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from metastore.backends.postgres.connect import Pool
from metastore.clock import SYSTEM, process_id
from metastore.deadlines import remaining, until
from metastore.errors import MetastoreError
from metastore.port.feed import Hearing

_CHANNEL: Final = "metastore_feed"
_NAME: Final = "metastore follower"
_BEGIN: Final = f"UNLISTEN *; LISTEN {_CHANNEL}; SET application_name = '{_NAME}'"
_END: Final = "UNLISTEN *; RESET application_name"
_ENDS: Final = 1.0
"""A session without an answer for this time is given up (seconds)."""

_FOLLOWS: Final = f"""EXISTS (SELECT 1 FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = '{_NAME}')"""
HINT: Final = f"SELECT pg_notify('{_CHANNEL}', '') WHERE {_FOLLOWS}"
"""Tells followers that the feed has new changes. It returns a row if there are followers."""
FOLLOWED: Final = f"SELECT 1 WHERE {_FOLLOWS}"
"""Returns a row if there are followers."""


@contextmanager
def hearing(pool: Pool) -> Iterator[Hearing | None]:
    """Hear hints while the block runs; yield None if no session can hear them."""
    connection: psycopg.Connection[Any] | None = None
    with suppress(psycopg.Error, MetastoreError):
        connection = pool.own_connection(_BEGIN)
    if connection is None:
        yield None
        return
    ear = _Ear(connection)
    try:
        yield ear
    finally:
        if not ear.is_inherited:
            try:
                with until(SYSTEM.monotonic() + _ENDS):
                    connection.execute(_END)
            except psycopg.Error:
                ear.works = False
            pool.take_back_own(connection, usable=ear.works)


class _Ear:
    """The hints of one session. If the session breaks, each wait lasts its full time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection, self._process = connection, process_id()
        self.works = True

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child, whose parent owns the session and gets its hints."""
        return self._process != process_id()

    def wait(self, seconds: float) -> bool:
        left = max(0.0, min(seconds, remaining(SYSTEM, math.inf)))
        if self.works and not self.is_inherited:
            try:
                return bool(list(self._connection.notifies(timeout=left, stop_after=1)))
            except psycopg.Error:
                self.works = False
        SYSTEM.sleep(left)
        return False
