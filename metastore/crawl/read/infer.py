"""Read one file: its schema, rows and statistics, or the reason why it cannot be read. Runs in Spark's executors.

No content of a file may stop the crawl: each fault becomes :class:`Unreadable`, with a reason of one line. It reads
only the footer of Parquet and ORC, the header and the beginning of each block of Avro, and every byte of text.
"""

from __future__ import annotations

import functools
import lzma
import zlib
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from metastore.crawl.files.archives import member_format, open_member
from metastore.crawl.files.filesystems import NO_OPTIONS, Options, why
from metastore.crawl.files.formats import Format, format_of
from metastore.crawl.files.limits import Limits
from metastore.crawl.files.open import InputFile, NotReadable
from metastore.crawl.files.places import base_name, join
from metastore.crawl.files.text import NotThisFormat, TextFile, open_packed
from metastore.crawl.read.avro import read_avro
from metastore.crawl.read.csv import TextFacts, read_csv
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.json import read_json
from metastore.crawl.read.orc import read_orc, why_not_orc
from metastore.crawl.read.parquet import read_parquet, why_not_parquet
from metastore.errors import InvalidArgument

__all__ = ["infer_file"]

_LONGEST: Final = 300
_TEXT: Final[dict[str, Callable[[TextFile], TextFacts]]] = {"csv": read_csv, "json": read_json}
_WHY_NOT: Final = {"parquet": why_not_parquet, "orc": why_not_orc}


def infer_file(
    location: str, name: str, size: int, options: Options = NO_OPTIONS, limits: Limits | None = None
) -> FileFacts | Unreadable:
    """Read the file ``name``, a path relative to the folder ``location``, of ``size`` bytes."""
    known = format_of(base_name(name))
    if known is None:
        return Unreadable(name, "has no known format")
    if size == 0:
        return Unreadable(name, "is empty (0 bytes)")
    file = InputFile(join(location, name), size, options)
    try:
        return _infer(file, name, known, limits or Limits())
    except Exception as error:  # noqa: BLE001 (a file may hold anything, and the rest must go on)
        return Unreadable(name, _reason(error, file, known))


def _infer(file: InputFile, name: str, known: Format, limits: Limits) -> FileFacts:
    match known.name:
        case "parquet":
            columns, rows, stats = read_parquet(file)
            return FileFacts(name, file.size, "parquet", columns, rows, stats=stats)
        case "orc":
            return FileFacts(name, file.size, "orc", *read_orc(file))
        case "avro":
            return FileFacts(name, file.size, "avro", *read_avro(file))
    return _infer_text(file, name, known, limits)


def _infer_text(file: InputFile, name: str, known: Format, limits: Limits) -> FileFacts:
    if known.compression == "zip":
        inside = member_format(file, known)
        text = TextFile(inside.file, functools.partial(open_member, file))
    else:
        inside = known
        text = TextFile(known.file, functools.partial(open_packed, file, known.compression))
    if known.compression is not None:
        text = TextFile(text.name, functools.partial(limits.unpacked, text.open, file.size))
    facts = _TEXT[inside.name](text)
    hints = facts.hints | ({"compression": known.compression} if known.compression else {})
    dialect = tuple(sorted(facts.dialect.items()))
    return FileFacts(name, file.size, inside.name, facts.columns, facts.rows, dialect, tuple(sorted(hints.items())))


def _reason(error: Exception, file: InputFile, known: Format) -> str:  # noqa: PLR0911 (a table of cases)
    """Return the reason why the file cannot be read, in one line."""
    match error:
        case NotThisFormat() | NotReadable():
            return str(error)
        case FileNotFoundError():
            return "is gone: it was there when the folder was listed"
        case PermissionError():
            return "cannot be read: permission denied"
        case EOFError() | zlib.error() | lzma.LZMAError():
            return f"is truncated or damaged: {_line(error)}"
        case UnicodeDecodeError():
            return "is not valid UTF-8"
        case MemoryError():
            return "does not fit into memory"
        case InvalidArgument():
            return f"has a schema that cannot be stored: {_line(error)}"
    if known.name in _WHY_NOT:
        return _why_not(file, known) or f"is damaged: {_line(error)}"
    if isinstance(error, (pa.ArrowException, OSError, ValueError)):
        return f"is not {known.name.upper()}, or damaged: {_line(error)}"
    return f"cannot be read: {type(error).__name__}: {_line(error)}"


def _why_not(file: InputFile, known: Format) -> str | None:
    try:
        return _WHY_NOT[known.name](file)
    except (OSError, NotReadable) as error:
        return f"cannot be read: {why(error)}"


def _line(error: Exception) -> str:
    text = why(error)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
