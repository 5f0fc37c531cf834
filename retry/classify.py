"""The meaning of an error code for a write that was sent: whether it was applied, and whether a retry can succeed.

Only codes are used, never message texts, which are translated. Sources: PostgreSQL manual, appendix A (SQLSTATE);
SQLite, "Result and Error Codes".
"""

from __future__ import annotations

import sqlite3
from enum import Enum


class Consequence(Enum):
    """The consequences of an error."""

    RETRY = "not applied; another attempt may succeed"
    UNKNOWN = "may or may not have been applied"
    UNAVAILABLE = "not applied; the database can not do it now"
    REFUSED = "not applied; the database denies it, now and later"
    SCHEMA = "not applied; the tables are missing or differ"
    REJECTED = "not applied; the database rejects the values"
    CHECK = "not applied; a check of the commit failed"
    UNIQUE = "not applied; a unique index refused it"
    OTHER = "not applied; a defect of this program, or damage in the database"


_STATES = {
    "40001": Consequence.RETRY,  # serialization_failure
    "40P01": Consequence.RETRY,  # deadlock_detected
    "55P03": Consequence.RETRY,  # lock_not_available
    "57014": Consequence.RETRY,  # query_canceled (a statement time-out)
    "25P04": Consequence.RETRY,  # transaction_timeout
    "25P03": Consequence.UNKNOWN,  # idle_in_transaction_session_timeout, which ends the session
    "40003": Consequence.UNKNOWN,  # statement_completion_unknown
    "22012": Consequence.CHECK,  # division_by_zero, which our checks raise
    "2201E": Consequence.CHECK,  # invalid_argument_for_logarithm, likewise
    "2201F": Consequence.CHECK,  # invalid_argument_for_power_function, likewise
    "2201G": Consequence.CHECK,  # invalid_argument_for_width_bucket_function, likewise
    "22008": Consequence.CHECK,  # datetime_field_overflow, likewise
    "22011": Consequence.CHECK,  # substring_error, likewise
    "22025": Consequence.CHECK,  # invalid_escape_sequence, likewise
    "2201W": Consequence.CHECK,  # invalid_row_count_in_limit_clause, likewise
    "2201B": Consequence.CHECK,  # invalid_regular_expression, likewise
    "2202E": Consequence.CHECK,  # array_subscript_error, likewise
    "53M01": Consequence.CHECK,  # from a trigger: the cache's members do not know of the change
    "23505": Consequence.UNIQUE,  # unique_violation
    "42P01": Consequence.SCHEMA,  # undefined_table
    "42703": Consequence.SCHEMA,  # undefined_column
    "3F000": Consequence.SCHEMA,  # invalid_schema_name
    "25006": Consequence.REFUSED,  # read_only_sql_transaction
    "42501": Consequence.REFUSED,  # insufficient_privilege
    "3D000": Consequence.UNAVAILABLE,  # invalid_catalog_name
    "57P01": Consequence.UNKNOWN,  # admin_shutdown, also while COMMIT waits for a replica
    "57P02": Consequence.UNKNOWN,  # crash_shutdown
    "57P03": Consequence.UNAVAILABLE,  # cannot_connect_now
    "57P04": Consequence.UNAVAILABLE,  # database_dropped
    "57P05": Consequence.UNKNOWN,  # idle_session_timeout
}
_CLASSES = {
    "08": Consequence.UNKNOWN,  # connection exceptions
    "22": Consequence.REJECTED,  # data exceptions
    "23": Consequence.REJECTED,  # integrity constraint violations
    "28": Consequence.UNAVAILABLE,  # invalid authorization
    "53": Consequence.UNAVAILABLE,  # insufficient resources: disk full, too many connections
    "54": Consequence.REJECTED,  # program limits: the statement is too large or too deep
    "55": Consequence.UNAVAILABLE,  # an object is not in the required state
    "57": Consequence.UNAVAILABLE,  # an operator intervened
    "58": Consequence.UNAVAILABLE,  # system errors, external to PostgreSQL
}


def of_sqlstate(sqlstate: str | None) -> Consequence:
    """Return the consequence of a SQLSTATE (None: the connection ended without one)."""
    if sqlstate is None:
        return Consequence.UNKNOWN
    return _STATES.get(sqlstate) or _CLASSES.get(sqlstate[:2], Consequence.OTHER)


_SQLITE = {
    sqlite3.SQLITE_BUSY: Consequence.RETRY,
    sqlite3.SQLITE_LOCKED: Consequence.RETRY,
    sqlite3.SQLITE_READONLY: Consequence.REFUSED,
    sqlite3.SQLITE_IOERR: Consequence.UNKNOWN,
    sqlite3.SQLITE_FULL: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_CANTOPEN: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_CORRUPT: Consequence.UNAVAILABLE,
    sqlite3.SQLITE_NOTADB: Consequence.REFUSED,
    sqlite3.SQLITE_PERM: Consequence.REFUSED,
    sqlite3.SQLITE_AUTH: Consequence.REFUSED,
    sqlite3.SQLITE_PROTOCOL: Consequence.RETRY,
    sqlite3.SQLITE_CONSTRAINT: Consequence.REJECTED,
    sqlite3.SQLITE_TOOBIG: Consequence.REJECTED,
    sqlite3.SQLITE_ERROR: Consequence.SCHEMA,
}
_SQLITE_UNIQUE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)


def of_sqlite(code: int | None) -> Consequence:
    """Classify a (possibly extended) SQLite result code."""
    if code is None:
        return Consequence.OTHER
    if code in _SQLITE_UNIQUE:
        return Consequence.UNIQUE
    if code == sqlite3.SQLITE_READONLY_DBMOVED:  # SQLite reports a missing right, but the file was replaced
        return Consequence.UNAVAILABLE
    return _SQLITE.get(code & 0xFF, Consequence.OTHER)
