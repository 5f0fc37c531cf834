"""Copy a SQLite database into a file, and put the copy back. PostgreSQL has its own tools for both."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metastore.arguments import boolean, shown
from metastore.errors import InvalidArgument
from metastore.transfer.files import FileOrName, file_name
from metastore.urls import parse_url, redacted

__all__ = ["back_up", "is_backup", "put_back"]

_BEGIN: Final = (b"SQLite format 3\0", b"PGDMP")


def back_up(url: str | None, file: str | Path) -> None:
    """Copy a SQLite database, as it is at one instant, into a new file. Other programs may write meanwhile.

    Raises InvalidArgument for another kind of database and for a file that exists; BackendUnavailable, BackendRefused.
    """
    from metastore.backends.sqlite import copies  # noqa: PLC0415  (not needed for PostgreSQL)

    copies.back_up(_database(url, "pg_dump writes its backups"), _named(file))


def put_back(url: str | None, file: str | Path, *, dry_run: bool = False) -> None:
    """Replace a SQLite database, which no program may have open, by a file of :func:`back_up`.

    ``dry_run``: only check the file.

    Raises InvalidArgument for another kind of database and for a file that is not a backup; BackendUnavailable while a
    program has the database open.
    """
    from metastore.backends.sqlite import copies  # noqa: PLC0415

    boolean(dry_run, "dry_run")
    copies.put_back(_database(url, "pg_restore puts a backup back"), _named(file), dry_run=dry_run)


def is_backup(file: FileOrName) -> bool:
    """Whether a file is a SQLite file or an archive of pg_dump, not an export."""
    try:
        name = file_name(file)
        if name is None:
            return False
        with Path(name).open("rb") as opened:
            return opened.read(16).startswith(_BEGIN)
    except (OSError, ValueError, InvalidArgument):  # the reader of the file reports the problem
        return False


def _named(file: FileOrName) -> Path:
    name = file_name(file)
    if name is None:
        raise InvalidArgument(f"a backup is the name of a file, not {shown(file)}")
    return Path(name)


def _database(url: str | None, instead: str) -> str:
    parsed = parse_url(url)
    if parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return str(parsed.database)
    tool = instead if parsed.is_postgres else "an export is its backup"
    raise InvalidArgument(f"{redacted(parsed)} is not a SQLite file: {tool}, as docs/operations.md says")
