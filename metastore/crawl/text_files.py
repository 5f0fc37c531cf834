"""Opening text files: unpacked, checked to be text, in an encoding that is known.

What is found wrong is :class:`NotThisFormat`, whose message is the reason that the user reads. UTF-8 (with or without
a byte order mark) and UTF-16 with one are read; text that is not valid UTF-8 is taken for ISO-8859-1, as databases
and spreadsheets export it.
"""

from __future__ import annotations

import codecs
import gzip
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SAMPLE", "NotThisFormat", "encoding_of", "open_text", "sample_of"]

SAMPLE: Final = 1 << 18
"""How many bytes are looked at before a file is read as a whole."""

_GZIP: Final = b"\x1f\x8b"
_CONTROLS: Final = bytes(c for c in range(32) if c not in b"\t\n\r\f\v\x1a\x1b") + b"\x7f"
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_KNOWN: Final = (
    (b"PAR1", "is Parquet"),
    (b"PARE", "is encrypted Parquet"),
    (b"ORC", "is ORC"),
    (b"Obj\x01", "is Avro"),
    (b"PK\x03\x04", "is a zip archive"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd"),
    (b"BZh", "is compressed with bzip2"),
    (b"\xfd7zXZ", "is compressed with xz"),
    (b"SQLite format 3", "is an SQLite database"),
    (b"%PDF", "is a PDF document"),
)


class NotThisFormat(Exception):
    """The file is not what its ending says, or damaged. The message says how, in one line."""


@contextmanager
def open_text(path: str, compression: str | None) -> Iterator[IO[bytes]]:
    """Open the file for reading its text's bytes, unpacked."""
    with Path(path).open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        if packed != (compression == "gzip"):
            raise NotThisFormat(f"is {'' if packed else 'not '}compressed with gzip, which its name does not say")
        if not packed:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield cast("IO[bytes]", unpacked)


def sample_of(path: str, compression: str | None) -> bytes:
    """Return the first bytes of the text, or raise NotThisFormat if it is none."""
    with open_text(path, compression) as stream:
        sample = stream.read(SAMPLE)
    if not sample.strip(b" \t\r\n\0"):
        raise NotThisFormat("is empty: there is nothing but blanks in it" if sample else "is empty")
    for magic, what in _KNOWN:
        if sample.startswith(magic):
            raise NotThisFormat(f"{what}, which its name does not say")
    if not sample.startswith(_UTF16) and sample.translate(None, _CONTROLS) != sample:
        raise NotThisFormat("is not text: it holds control characters")
    if sample.lstrip(codecs.BOM_UTF8 + b" \t\r\n")[:9].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise NotThisFormat("is HTML or XML, which its name does not say")
    return sample


def encoding_of(sample: bytes) -> str:
    """Return the encoding that the first bytes of a text are in."""
    if sample.startswith(_UTF16):
        return "UTF-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < SAMPLE)
    except UnicodeDecodeError:
        return "ISO-8859-1"
    return "UTF-8"
