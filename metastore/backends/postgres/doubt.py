"""Notice that an answer may not be true later. The server says so beside the answer, in a notice or a parameter.

*A commit that no replica confirmed.* An administrator may stop a commit that waits for its synchronous replica. The
server applies it then, and answers with a warning and a success. A fail-over would undo it.

*A replica that was promoted.* It commits its own changes, and shows no later changes of the primary. On each open
connection it reports this with its next answer.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.errors import Diagnostic

_WAITS: Final = ("SyncRepWaitForLSN", "syncrep.c")
"""The function, and the file, of PostgreSQL in which a commit waits for its replica.

Texts are translated, and the warning has no SQLSTATE that tells it from others.
"""
_STANDBY: Final = b"in_hot_standby"
"""A parameter that the server reports when a connection is opened, and when it changes."""


class Unconfirmed(psycopg.OperationalError):
    """The server applied the statement, but no replica confirmed it. It has no SQLSTATE: the outcome is unknown."""


class Promoted(psycopg.OperationalError):
    """The server was a replica when the connection was opened, and is a primary now."""


class Doubt:
    """The notices and parameters of one connection.

    It is a handler of notices: it must not refer to the connection itself.
    """

    def __init__(self, pgconn: Any) -> None:
        self._pgconn = pgconn
        self._was_standby = self._is_standby()
        self.unconfirmed = False
        """A commit's wait for its replica was stopped."""

    def __call__(self, notice: Diagnostic) -> None:
        """Listen to a notice."""
        self.unconfirmed = self.unconfirmed or _says_so(notice)

    @property
    def promoted(self) -> bool:
        """Whether the server was promoted since the connection was opened."""
        return self._was_standby and not self._is_standby()

    def _is_standby(self) -> bool:
        return bool(self._pgconn.parameter_status(_STANDBY) == b"on")


def _says_so(notice: Diagnostic) -> bool:
    """Whether a notice says that the wait for a replica was stopped."""
    where = (notice.source_function, notice.source_file)
    if any(where):
        return bool({*where} & {*_WAITS})
    # the server hides where its notices come from, so any warning may be this one
    return notice.severity_nonlocalized in (None, "WARNING")
