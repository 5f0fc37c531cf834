"""Read the end of an ORC file, and check how much its footer unpacks to.

A file ends with the footer, the postscript (a protobuf message) and one byte, the postscript's length. The footer is
packed in chunks: 3 bytes with the length, and whether the chunk is packed. Each chunk unpacks to at most the block size
of the postscript (ORC specification v1, "Postscript" and "Compression"). So the headers of the chunks show a bound for
the size that the library would unpack, without unpacking.
"""

from __future__ import annotations

import io
from typing import Any, Final

from metastore.crawl.files.reasons import NotThisFormat

__all__ = ["OrcFile"]

_TAIL: Final = 1 << 14
"""How many bytes the library reads first. One request fetches as many."""
_FOOTER: Final = 1 << 26
"""The most bytes of a footer, packed and unpacked; an Avro header may have as many."""
_LENGTH, _COMPRESSION, _BLOCK = 1, 2, 3
"""The fields of the postscript."""
_VARINT, _BYTES = 0, 2
"""Wire types of protobuf."""


class OrcFile(io.RawIOBase):
    """A source for pyarrow. The end of the file is read once, for the check and for the library."""

    def __init__(self, source: Any) -> None:
        self._source, self._size, self._at = source, source.size(), 0
        self._begin = max(0, self._size - _TAIL)
        self._tail = self._bytes(self._begin, self._size)

    def check(self) -> None:
        """Raise NotThisFormat for a footer that is larger than any schema. A damaged end is left to the library."""
        tail = self._tail
        if not tail or tail[-1] + 1 > len(tail):
            return
        postscript = _numbers(tail[-1 - tail[-1] : -1])
        length = postscript.get(_LENGTH, 0)
        if length > _FOOTER:
            raise NotThisFormat(f"has a footer of {length:,} bytes; at most {_FOOTER:,} are read")
        begin = self._size - 1 - tail[-1] - length
        if begin < 0 or not postscript.get(_COMPRESSION):
            return
        footer = (
            tail[begin - self._begin : -1 - tail[-1]] if begin >= self._begin else self._bytes(begin, begin + length)
        )
        unpacked = _most(footer, postscript.get(_BLOCK, 0))
        self.seek(0)
        if unpacked > _FOOTER:
            raise NotThisFormat(
                f"has a footer that may unpack to {unpacked:,} bytes, as a decompression bomb does; "
                f"at most {_FOOTER:,} are read"
            )

    def _bytes(self, begin: int, end: int) -> bytes:
        self._source.seek(begin)
        data: bytes = self._source.read(end - begin)
        return data

    # --- the methods that the library calls

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        begin, self._at = self._at, max(end, self._at)
        if begin >= self._begin:
            return self._tail[begin - self._begin : end - self._begin]
        return self._bytes(begin, end)


def _most(footer: bytes, block: int) -> int:
    """Return an upper bound of the bytes to which the chunks of a footer unpack."""
    at = most = 0
    while at + 3 <= len(footer):
        header = int.from_bytes(footer[at : at + 3], "little")
        length, original = header >> 1, header & 1
        most += length if original else block
        at += 3 + length
    return most


def _numbers(message: bytes) -> dict[int, int]:
    """Return the integer fields of a protobuf message, up to the first field that is neither a varint nor bytes."""
    numbers: dict[int, int] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == _VARINT:
            numbers[key >> 3] = value
        elif key & 7 == _BYTES:
            at += value
        else:
            break
    return numbers


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            break
    return value, at
