"""One file: its schema, rows and statistics, or the reason why there are none. Runs in Spark's executors.

Nothing that a file holds may stop the crawl: whatever is wrong with it ends as :class:`Unreadable`, with one line
that a person can read. Of Parquet only the footer is read, of text every byte.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from metastore.crawl.facts import FileFacts, Unreadable
from metastore.crawl.formats import Format, format_of
from metastore.crawl.places import base_name, join
from metastore.crawl.read_csv import TextFacts, read_csv
from metastore.crawl.read_json import read_json
from metastore.crawl.read_parquet import read_parquet, why_not_parquet
from metastore.crawl.text_files import NotThisFormat
from metastore.errors import InvalidArgument

__all__ = ["infer_file"]

_LONGEST: Final = 300
_READERS: Final = {"csv": read_csv, "json": read_json}


def infer_file(folder: str, name: str, size: int) -> FileFacts | Unreadable:
    """Look into the file ``name``, a path relative to ``folder``, of ``size`` bytes."""
    path = join(folder, name)
    known = format_of(base_name(name))
    if known is None:
        return Unreadable(name, "has no known format")
    if size == 0:
        return Unreadable(name, "is empty (0 bytes)")
    try:
        return _infer(path, name, size, known)
    except Exception as error:  # noqa: BLE001 (a file may hold anything, and the rest must go on)
        return Unreadable(name, _reason(error, path, known))


def _infer(path: str, name: str, size: int, known: Format) -> FileFacts:
    if known.name == "parquet":
        columns, rows, stats = read_parquet(path)
        return FileFacts(name, size, "parquet", columns, rows, stats=stats)
    found: TextFacts = _READERS[known.name](path, known.compression)
    hints = found.hints | ({"compression": known.compression} if known.compression else {})
    dialect = tuple(sorted(found.dialect.items()))
    return FileFacts(name, size, known.name, found.columns, found.rows, dialect, tuple(sorted(hints.items())))


def _reason(error: Exception, path: str, known: Format) -> str:  # noqa: PLR0911 (a table of cases)
    """Say in one line what is wrong with the file."""
    match error:
        case NotThisFormat():
            return str(error)
        case FileNotFoundError():
            return "is gone: it was there when the folder was listed"
        case PermissionError():
            return "cannot be read: permission denied"
        case EOFError() | zlib.error():
            return f"is truncated or damaged: {_line(error)}"
        case UnicodeDecodeError():
            return "is not valid UTF-8"
        case MemoryError():
            return "does not fit into memory"
        case InvalidArgument():
            return f"has a schema that cannot be stored: {_line(error)}"
    if known.name == "parquet":
        return _why_not_parquet(path) or f"is damaged: {_line(error)}"
    if isinstance(error, (pa.ArrowException, OSError, ValueError)):
        return f"is not {known.name.upper()}, or damaged: {_line(error)}"
    return f"cannot be read: {type(error).__name__}: {_line(error)}"


def _why_not_parquet(path: str) -> str | None:
    try:
        return why_not_parquet(path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
