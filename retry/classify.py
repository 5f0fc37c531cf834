"""What an error code says about a write that was sent: was it applied, and is it worth another try?

Codes only, never message texts: those are translated. Sources: PostgreSQL manual, appendix A
(SQLSTATE); SQLite, "Result and Error Codes".
"""

from __future__ import annotations

import sqlite3
from enum import Enum

__all__ = ["Verdict", "of_sqlite", "of_sqlstate"]


class Verdict(Enum):
    """The consequences of an error."""

    RETRY = "not applied; another attempt may succeed"
    UNKNOWN = "may or may not have been applied"
    UNAVAILABLE = "not applied; the database can not do it now"
    REFUSED = "not applied; the database denies it, now and later"
    SCHEMA = "not applied; the tables are missing or differ"
    REJECTED = "not applied; the database rejects the values"
    CHECK = "not applied; a check of the commit failed"
    UNIQUE = "not applied; a unique index refused it"
    OTHER = "not applied; a defect"


_STATES = {
    "40001": Verdict.RETRY,  # serialization_failure
    "40P01": Verdict.RETRY,  # deadlock_detected
    "55P03": Verdict.RETRY,  # lock_not_available
    "57014": Verdict.RETRY,  # query_canceled (a statement time-out)
    "40003": Verdict.UNKNOWN,  # statement_completion_unknown
    "22012": Verdict.CHECK,  # division_by_zero, which our checks raise
    "2201E": Verdict.CHECK,  # invalid_argument_for_logarithm, likewise
    "2201F": Verdict.CHECK,  # invalid_argument_for_power_function, likewise
    "2201G": Verdict.CHECK,  # invalid_argument_for_width_bucket_function, likewise
    "22008": Verdict.CHECK,  # datetime_field_overflow, likewise
    "22011": Verdict.CHECK,  # substring_error, likewise
    "22025": Verdict.CHECK,  # invalid_escape_sequence, likewise
    "2201B": Verdict.CHECK,  # invalid_regular_expression, likewise
    "2202E": Verdict.CHECK,  # array_subscript_error, likewise
    "53M01": Verdict.CHECK,  # of a trigger: processes that cache do not know of the change
    "23505": Verdict.UNIQUE,  # unique_violation
    "42P01": Verdict.SCHEMA,  # undefined_table
    "42703": Verdict.SCHEMA,  # undefined_column
    "3F000": Verdict.SCHEMA,  # invalid_schema_name
    "25006": Verdict.REFUSED,  # read_only_sql_transaction
    "42501": Verdict.REFUSED,  # insufficient_privilege
    "3D000": Verdict.UNAVAILABLE,  # invalid_catalog_name
    "57P01": Verdict.UNKNOWN,  # admin_shutdown, also while COMMIT waits for a replica
    "57P02": Verdict.UNKNOWN,  # crash_shutdown
    "57P03": Verdict.UNAVAILABLE,  # cannot_connect_now
    "57P04": Verdict.UNAVAILABLE,  # database_dropped
    "57P05": Verdict.UNKNOWN,  # idle_session_timeout
}
_CLASSES = {
    "08": Verdict.UNKNOWN,  # connection exceptions
    "22": Verdict.REJECTED,  # data exceptions
    "23": Verdict.REJECTED,  # integrity constraint violations
    "28": Verdict.UNAVAILABLE,  # invalid authorization
    "53": Verdict.UNAVAILABLE,  # insufficient resources: disk full, too many connections
    "58": Verdict.UNAVAILABLE,  # system errors, external to PostgreSQL
}


def of_sqlstate(sqlstate: str | None) -> Verdict:
    """Classify a SQLSTATE; None is a connection that ended without one."""
    if sqlstate is None:
        return Verdict.UNKNOWN
    return _STATES.get(sqlstate) or _CLASSES.get(sqlstate[:2], Verdict.OTHER)


_SQLITE = {
    sqlite3.SQLITE_BUSY: Verdict.RETRY,
    sqlite3.SQLITE_LOCKED: Verdict.RETRY,
    sqlite3.SQLITE_READONLY: Verdict.REFUSED,
    sqlite3.SQLITE_IOERR: Verdict.UNKNOWN,
    sqlite3.SQLITE_FULL: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_CANTOPEN: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_CORRUPT: Verdict.UNAVAILABLE,
    sqlite3.SQLITE_NOTADB: Verdict.REFUSED,
    sqlite3.SQLITE_PERM: Verdict.REFUSED,
    sqlite3.SQLITE_AUTH: Verdict.REFUSED,
    sqlite3.SQLITE_PROTOCOL: Verdict.RETRY,
    sqlite3.SQLITE_CONSTRAINT: Verdict.REJECTED,
    sqlite3.SQLITE_TOOBIG: Verdict.REJECTED,
    sqlite3.SQLITE_ERROR: Verdict.SCHEMA,
}
_SQLITE_UNIQUE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)


def of_sqlite(code: int | None) -> Verdict:
    """Classify a (possibly extended) SQLite result code."""
    if code is None:
        return Verdict.OTHER
    if code in _SQLITE_UNIQUE:
        return Verdict.UNIQUE
    if code == sqlite3.SQLITE_READONLY_DBMOVED:  # not a right that is missing: the file is another one by now
        return Verdict.UNAVAILABLE
    return _SQLITE.get(code & 0xFF, Verdict.OTHER)
