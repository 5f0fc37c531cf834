"""Turn a PostgreSQL error into the caller's error if surely nothing was applied."""

from __future__ import annotations

from typing import Final, NoReturn

import psycopg

from metastore.backends.postgres.connection import OutOfTime
from metastore.errors import (
    BackendRefused,
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    MigrationNeeded,
)
from metastore.retry.classify import Consequence, of_sqlstate

_OF_THE_CLIENT: Final = (psycopg.InterfaceError, psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError)


def first_line(error: psycopg.Error) -> str:
    """Return the line that says what happened, without the hint below it; if there are several addresses, the last."""
    if error.diag.message_primary:
        return " ".join(error.diag.message_primary.split())
    lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1].strip() if lines else type(error).__name__


def refused_here(error: psycopg.Error) -> bool:
    """Whether the client refused a statement, so that nothing was sent.

    Any other error without a SQLSTATE is a broken connection, or an incomprehensible answer: the server may have done
    what was sent.
    """
    return error.sqlstate is None and isinstance(error, _OF_THE_CLIENT)


def raise_read_error(error: psycopg.Error) -> NoReturn:
    """Raise the caller's error for a read, or for a write that was surely not applied."""
    meaning = _translated(error)
    if meaning is error:
        raise error
    if of_sqlstate(error.sqlstate) not in _MEANINGS:
        raise meaning from error  # the traceback names the statement
    raise meaning from (None if isinstance(meaning, BackendUnavailable | DeadlineExceeded) else error)


_WRITER: Final = "metastore_writer"
"""The name in the errors of the triggers that refuse too old programs."""
_AGAIN = (BackendUnavailable, "the database cannot do this now: {}; try again later")
_MEANINGS: dict[Consequence, tuple[type[MetastoreError], str]] = {
    Consequence.SCHEMA: (MigrationNeeded, "the database has no fitting schema ({}); run: metastore migrate"),
    Consequence.REJECTED: (InvalidArgument, "the database refuses a value: {}"),
    Consequence.REFUSED: (
        BackendRefused,
        "the database refuses it: {}; its owner must allow it (see docs/operations.md)",
    ),
    Consequence.UNAVAILABLE: _AGAIN,
    Consequence.UNKNOWN: _AGAIN,
    Consequence.RETRY: _AGAIN,
}
_PASSES: Final = (Consequence.UNKNOWN, Consequence.RETRY)
"""The errors of a broken connection, or of this moment: a mutation that read reads again, until its deadline."""
_OF_STATEMENTS: Final = (Consequence.CHECK, Consequence.UNIQUE)
"""The errors that a statement raises on purpose: the code that sends it knows their meaning."""
_BROKEN: Final = "the database failed: {} (SQLSTATE {}); look at the server's log, then run: metastore verify"


def _translated(error: psycopg.Error) -> MetastoreError | psycopg.Error:
    text, consequence = first_line(error), of_sqlstate(error.sqlstate)
    if error.diag.constraint_name == _WRITER:
        return MigrationNeeded(text)
    if isinstance(error, OutOfTime):
        return DeadlineExceeded("the database did not answer within the deadline; call again later")
    if error.sqlstate == "57014":
        return DeadlineExceeded(f"the database did not answer within the store's deadline: {text}; call again later")
    if isinstance(error, psycopg.DataError):
        consequence = Consequence.REJECTED
    elif refused_here(error):
        return error  # a bug in this program
    if consequence in _OF_STATEMENTS:
        return error
    meaning, message = _MEANINGS.get(consequence, (BackendRefused, _BROKEN))
    said = meaning(message.format(text, error.sqlstate))
    if isinstance(said, BackendUnavailable):
        said.transient = consequence in _PASSES
    return said
