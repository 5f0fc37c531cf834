"""Decode the values of Gravitino's columns: JSON texts, audits, times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row
from metastore.kinds.kind import MAX_DOC, check_depth, to_json
from metastore.verify.history import time_problem

__all__ = [
    "DAMAGED",
    "IDENTIFIER",
    "Key",
    "audit",
    "check_size",
    "comment",
    "json_of",
    "known_audit",
    "known_version",
    "properties",
]

Key = tuple[str, int]
"""A kind, and Gravitino's id."""
DAMAGED: Final = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError, StopIteration, OverflowError),
    RecursionError,  # JSON that is nested too deeply
)
"""The errors that reading a damaged row raises."""

_IN_USE: Final = "in-use"
IDENTIFIER: Final = "gravitino.identifier"
"""The property in which Gravitino keeps an entity's id, which it does not show."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def json_of(text: Any, default: Any = None) -> Any:
    """Return the value of a JSON text; the default for None or an empty text. Raises ValueError."""
    return default if text is None or (isinstance(text, str) and not text.strip()) else json.loads(text)


def properties(row: Row, column: str = "properties", *, can_be_disabled: bool = False) -> tuple[dict[str, str], bool]:
    """Return the properties of a row, and whether it is in use.

    In Gravitino, the properties also hold the entity's id. If its kind can be disabled, they say whether it is in use.
    """
    pairs = json_of(row.get(column), {}) or {}
    if not isinstance(pairs, Mapping):
        raise ValueError(f"{column} is not an object")  # noqa: TRY004  (the row is bad, not the caller)
    clean = {str(key): str(value) for key, value in pairs.items() if key and value is not None}
    clean.pop(IDENTIFIER, None)
    return clean, not can_be_disabled or clean.pop(_IN_USE, "true") != "false"


def check_size(doc: Mapping[str, Any]) -> None:
    """Raise ValueError for a document that is larger or deeper than the store allows."""
    text = to_json(doc)
    if len(text) > MAX_DOC:
        raise ValueError(f"it makes a document of {len(text)} bytes; at most {MAX_DOC} are allowed")
    check_depth(text, doc)


def comment(row: Row, column: str) -> str | None:
    """Return a comment; None if it is empty, as Gravitino stores a missing one."""
    return row.get(column) or None


def audit(row: Row) -> dict[str, Any]:
    """Return who made and changed a row, and when, as in the lines of an export (µs since 1970).

    Raises ValueError for a time or a name that cannot be stored, and the other errors of DAMAGED.
    """
    stored = json_of(row.get("audit_info"), {}) or {}
    made, by = _micros(stored.get("createTime")), _name(stored.get("creator"))
    changed, changed_by = _micros(stored.get("lastModifiedTime")), _name(stored.get("lastModifier"))
    return {
        "created_by": by,
        "created_at": made,
        "modified_by": changed_by or by,
        "modified_at": max(changed, made),
    }


def _name(value: Any) -> str | None:
    if value is None:
        return None
    name = str(value)
    name.encode()  # JSON can hold one half of a surrogate pair, and UTF-8 cannot
    if "\x00" in name:  # a text of PostgreSQL cannot hold a NUL either
        raise ValueError("the name of a user has a NUL")
    return name


def known_audit(row: Row, report: Report | None = None, what: str = "") -> dict[str, Any]:
    """Return the audit of a row; for a damaged row, an empty one. The report names the row."""
    try:
        return audit(row)
    except DAMAGED as error:
        if report is not None:
            report.find("unreadable", f"the audit of {what} ({type(error).__name__})", "came over without it")
        return audit({})


def _micros(value: Any) -> int:
    """Return a time that Jackson wrote: a text in ISO 8601, or seconds since 1970."""
    micros = 0 if value is None else _since_1970(value)
    if problem := time_problem("noted", micros):
        raise ValueError(problem)
    return micros


def _since_1970(value: Any) -> int:
    if isinstance(value, int | float):
        return (_EPOCH + timedelta(seconds=value) - _EPOCH) // timedelta(microseconds=1)  # checks the range
    text = str(value).replace("Z", "+00:00")
    head, dot, rest = text.partition(".")
    if dot:  # Java writes nanoseconds
        digits = len(rest) - len(rest.lstrip("0123456789"))
        text = f"{head}.{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}"
    at = datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def known_version(row: Row, column: str = "current_version") -> int:
    """Return the version of a row, from 1 on."""
    return max(1, int(row.get(column) or 1))
