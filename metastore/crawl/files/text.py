"""Open text files: unpack them, check that they are text, and find their encoding.

:class:`NotThisFormat` says what is wrong with a file; its message is the reason in the report. UTF-16 needs a byte
order mark, UTF-8 does not. Any other text is read as ISO-8859-1, as databases and spreadsheets export it.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from metastore.crawl.files.open import InputFile
from metastore.crawl.files.reasons import NotThisFormat
from metastore.crawl.files.xz import XzFile

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LARGEST", "NotThisFormat", "Sample", "TextFile", "encoding_of", "open_packed", "samples_of"]

LARGEST: Final = 1 << 26
"""The most bytes of a text that are in memory, and so the longest row."""
_SAMPLES: Final = tuple(1 << bits for bits in range(18, 27, 2))
"""The sizes of the samples: each is tried if the one before holds no whole row."""

_CONTROLS: Final = bytes(c for c in range(32) if c not in b"\t\n\r\f\v\x1a\x1b") + b"\x7f"
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
_OPENERS: Final[dict[str, Callable[[Any], Any]]] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw),
    "bzip2": bz2.BZ2File,
    "zstd": lambda raw: pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"),
    "xz": XzFile,
}
_BINARY: Final = (
    *((magic, f"is compressed with {name}") for magic, name in _PACKED.items() if name != "zip"),
    (b"PAR1", "is Parquet"),
    (b"PARE", "is encrypted Parquet"),
    (b"ORC", "is ORC"),
    (b"Obj\x01", "is Avro"),
    (b"PK\x03\x04", "is a zip archive"),
    (b"SQLite format 3", "is an SQLite database"),
)
_MARKUP: Final = ((b"%pdf-", "is a PDF document"), *((x, "is HTML or XML") for x in (b"<!doctype", b"<html", b"<?xml")))


@dataclass(frozen=True)
class TextFile:
    """A text file: its name without the compression's ending, and a function that opens its text from the beginning."""

    name: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The first bytes of a text. ``whole``: the text has no other bytes."""

    data: bytes
    whole: bool


@contextmanager
def open_packed(file: InputFile, compression: str | None) -> Iterator[IO[bytes]]:
    """Open the unpacked bytes of the file's text."""
    with file.open() as raw:
        head = raw.read(8)
        raw.seek(0)
        if compression is None:
            yield raw
            return
        packing = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
        if packing != compression:
            raise NotThisFormat(
                f"is not compressed with {compression}, which its name says"
                + (f", but with {packing}" if packing else "")
            )
        with _OPENERS[compression](raw) as unpacked:
            yield cast("IO[bytes]", unpacked)


def samples_of(file: TextFile) -> Iterator[Sample]:
    """Yield the first bytes of the text, more each time, until they hold the whole text, or are too many.

    The caller takes the first sample that holds what it needs. Raises NotThisFormat for a file that is not text.
    """
    blank = True
    for size in _SAMPLES:
        with file.open() as stream:
            data = _first(stream, size + 1)
        sample = Sample(data[:size], len(data) <= size)
        blank = not sample.data.strip(b" \t\r\n\0")
        if not blank:
            _check_text(sample.data)
            yield sample
        elif sample.whole:
            raise NotThisFormat("is empty: there is nothing but blanks in it" if data else "is empty")
        if sample.whole:
            return
    if blank:
        raise NotThisFormat(f"begins with {LARGEST >> 20} MiB of blanks")


def _first(stream: IO[bytes], size: int) -> bytes:
    """Read ``size`` bytes, or as many as there are; a single read may return fewer."""
    parts = []
    while size and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _check_text(sample: bytes) -> None:
    """Raise NotThisFormat, with the format of the file if it is known, unless the sample is text."""
    if not sample.startswith(_UTF16) and sample.translate(None, _CONTROLS) != sample:
        known = next((what for magic, what in _BINARY if sample.startswith(magic)), None)
        raise NotThisFormat(
            f"{known}, which its name does not say" if known else "is not text: it has control characters"
        )
    start = sample.lstrip(codecs.BOM_UTF8 + b" \t\r\n")[:9].lower()
    known = next((what for begin, what in _MARKUP if start.startswith(begin)), None)
    if known is not None:
        raise NotThisFormat(f"{known}, which its name does not say")


def encoding_of(sample: Sample) -> str:
    """Return the encoding that the first bytes of a text are in."""
    if sample.data.startswith(_UTF16):
        return "UTF-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample.data, final=sample.whole)
    except UnicodeDecodeError:
        return "ISO-8859-1"
    return "UTF-8"
