"""Notice that an answer may become untrue. The server says so beside the answer, in a notice or a parameter.

*A commit that no replica confirmed.* An administrator may stop a commit that waits for its synchronous replica. The
server then applies the commit, and answers with a warning and a success. A fail-over would undo it.

*A replica that was promoted.* It commits changes of its own, and shows no later changes of the primary. Each open
connection learns of this with its next answer.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.errors import Diagnostic

_WAITS: Final = ("SyncRepWaitForLSN", "syncrep.c")
"""The PostgreSQL function and file in which a commit waits for its replica.

The warning's text is translated, and its SQLSTATE is not specific.
"""
_STANDBY: Final = b"in_hot_standby"
"""A parameter that the server reports when a connection opens, and when it changes."""


class Unconfirmed(psycopg.OperationalError):
    """The server applied the statement, but no replica confirmed it. It has no SQLSTATE, so the outcome is unknown."""


class Promoted(psycopg.OperationalError):
    """The server was a replica when the connection was opened, and is now a primary."""


class Doubt:
    """The notices and parameters of one connection.

    psycopg calls it for each notice. It must not refer to the connection itself.
    """

    def __init__(self, pgconn: Any) -> None:
        self._pgconn = pgconn
        self._was_standby = self._is_standby()
        self.unconfirmed = False
        """The wait of a commit for its replica was stopped."""

    def __call__(self, notice: Diagnostic) -> None:
        """Note whether a notice casts doubt on an answer."""
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
    # a server may hide where its notices come from; then any warning may be this one
    return notice.severity_nonlocalized in (None, "WARNING")
