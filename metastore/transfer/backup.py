"""Copy a database into a file, and put the copy back. PostgreSQL has its own tools for both."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metastore.errors import InvalidArgument
from metastore.urls import parse_url, redacted

__all__ = ["back_up", "is_backup", "put_back"]

_BEGIN: Final = (b"SQLite format 3\0", b"PGDMP")


def back_up(url: str | None, file: str | Path) -> None:
    """Write a SQLite database, as it is at one instant, into a new file; others may go on writing.

    Raises InvalidArgument for another kind of database and for a file that exists; BackendUnavailable, BackendRefused.
    """
    from metastore.backends.sqlite import copies  # noqa: PLC0415  (not needed for PostgreSQL)

    copies.back_up(_database(url, "pg_dump writes its backups"), Path(file))


def put_back(url: str | None, file: str | Path) -> None:
    """Put a file of :func:`back_up` in the place of a SQLite database, which no program may have open.

    Raises InvalidArgument for another kind of database and for a file that is no backup; BackendUnavailable while a
    program has the database open.
    """
    from metastore.backends.sqlite import copies  # noqa: PLC0415

    copies.put_back(_database(url, "pg_restore puts a backup back"), Path(file))


def is_backup(file: str | Path) -> bool:
    """Whether a file is of a kind that a database's own tools write: a SQLite file, or an archive of pg_dump."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(16).startswith(_BEGIN)
    except (OSError, ValueError):
        return False


def _database(url: str | None, instead: str) -> str:
    parsed = parse_url(url)
    if parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return str(parsed.database)
    tool = instead if parsed.is_postgres else "an export is its backup"
    raise InvalidArgument(f"{redacted(parsed)} is no SQLite file: {tool}, as docs/operations.md says")
