"""Copy a SQLite database into one file, and restore the database from such a file.

A database is more than its file, because it has a log (``-wal``) beside it. SQLite writes the copy, which includes the
content of the log. A copy is put back only while no program has the database open. The log of the earlier state is then
removed, because SQLite would replay it over the copy.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from metastore.backends.sqlite.connect import DRIVER
from metastore.backends.sqlite.replaced import NOTHING, Replaced, keep, replaced
from metastore.clock import SYSTEM
from metastore.errors import BackendRefused, BackendUnavailable, InvalidArgument
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.parts import open_part

_PATIENCE: Final = 5.0
"""How long to wait for a lock (seconds)."""
_BESIDE: Final = ("-wal", "-shm", "-journal")
_PART: Final = ".part"
"""The suffix of an incomplete file."""


def back_up(database: str, target: Path) -> None:
    """Write the database, as it is at one instant, into the new file ``target``. Others may write meanwhile.

    Raises InvalidArgument if the target exists, BackendUnavailable, BackendRefused.
    """
    if target.exists():
        raise InvalidArgument(f"{target} exists already; remove it, or name a new file")
    if not Path(database).is_file():
        raise BackendUnavailable(f"there is no SQLite database {database}; check the path")
    _write(database, target)


def put_back(database: str, source: Path, *, dry_run: bool = False) -> None:
    """Replace the database's state with the state of ``source``, which :func:`back_up` wrote.

    Ids and lease tokens that the replaced state has given are not given again. ``dry_run``: only check the source.

    Raises InvalidArgument if the source is not such a file, or is the database; BackendUnavailable if that is in use.
    """
    _check(source)
    if Path(database).exists() and source.samefile(database):
        raise InvalidArgument(f"{source} is the database itself; name a file of: metastore backup")
    if dry_run:
        return
    with _alone(database) as kept:
        _write(str(source), Path(database).resolve(), kept)


def _write(source: str, target: Path, kept: Replaced = NOTHING) -> None:
    """Let SQLite copy a database to ``target``. Afterwards either the whole copy is on the disk, or no file exists."""
    try:
        with _part_of(target) as part:
            _fill(source, part, kept)
            if target.exists():
                shutil.copymode(target, part)
            _sync(part)
            for end in _BESIDE:
                Path(f"{target}{end}").unlink(missing_ok=True)
            part.replace(target)
        _sync(target.parent)
    except (OSError, DRIVER.Error, UnicodeDecodeError) as error:
        raise BackendUnavailable(f"cannot copy {source} to {target}: {error}; check both paths and the disk") from None


@contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    """Yield an empty file beside the target, which only this process writes; an error removes the file."""
    part = target.with_name(target.name + _PART)
    number = open_part(part)
    try:
        os.ftruncate(number, 0)
        yield part
    except BaseException:
        for end in ("", *_BESIDE):
            with suppress(OSError):
                Path(f"{part}{end}").unlink(missing_ok=True)
        raise
    finally:
        os.close(number)


def _fill(source: str, part: Path, kept: Replaced) -> None:
    """Let SQLite copy a database to a file. Raises BackendRefused if it finds damage."""
    with closing(_connect(source)) as read, closing(_connect(str(part))) as written:
        read.backup(written, progress=_Patience(source))
        written.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file, without a WAL
        problem = _problem(written)
        if problem is not None:
            raise BackendRefused(f"SQLite finds damage in {source}: {problem}; take another backup")
        keep(written, kept)


class _Patience:
    """The end of a copy whose source another program keeps locked, because the driver would try for ever."""

    def __init__(self, source: str) -> None:
        self._source, self._ends = source, SYSTEM.monotonic() + _PATIENCE

    def __call__(self, status: int, remaining: int, total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and SYSTEM.monotonic() > self._ends:
            raise BackendUnavailable(f"a program keeps {self._source} locked; end it, then copy again")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(file: str) -> Any:
    """Connect to an existing file."""
    uri = f"{Path(file).absolute().as_uri()}?mode=rw"
    return DRIVER.connect(uri, timeout=_PATIENCE, isolation_level=None, uri=True)


def _problem(connection: Any) -> str | None:
    """Return the first finding of SQLite's own check; None: no damage."""
    ((found,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    return None if found == "ok" else str(found)


def _check(source: Path) -> None:
    """Check that a file is one of this program's databases, and is complete."""
    if not source.is_file():
        raise InvalidArgument(f"there is no backup {source}; check the path")
    try:
        with closing(_connect(str(source))) as connection:
            ((compatible_from,),) = connection.execute("SELECT compatible_from FROM info").fetchall()
            problem = _problem(connection)
    except (DRIVER.Error, UnicodeDecodeError) as error:  # UnicodeDecodeError: SQLite's message quotes damaged text
        raise InvalidArgument(
            f"{source} is not a backup of a metastore: {error}; name a file of: metastore backup"
        ) from None
    if problem is not None:
        raise InvalidArgument(f"SQLite finds damage in the backup {source}: {problem}; take another one")
    if compatible_from > SCHEMA_FORMAT:
        raise InvalidArgument(f"{source} is of a newer program (format {compatible_from}); use that program")


@contextmanager
def _alone(database: str) -> Iterator[Replaced]:
    """Hold the database exclusively, with its log emptied and removed; yield what to keep from the database.

    A file that SQLite cannot read counts as missing.
    """
    if not Path(database).is_file():
        yield NOTHING
        return
    with closing(_connect(database)) as connection:
        try:
            # SQLite leaves WAL mode only if no other connection is open
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
        except (DRIVER.Error, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise BackendUnavailable(
                    f"a program has {database} open; end all programs that use it, then put the backup back again"
                ) from None
        yield replaced(connection)
