"""Unpack xz within a limit of memory: a file says how large its dictionary is, up to 4 GiB."""

from __future__ import annotations

import io
import lzma
from typing import IO, Any, Final

from metastore.crawl.files.reasons import NotThisFormat

__all__ = ["XzFile"]

_MEMORY: Final = 1 << 27
"""The most memory that unpacking takes. ``xz -9`` needs 65 MiB; only a dictionary chosen by hand needs more."""
_PIECE: Final = 1 << 16


class XzFile(io.RawIOBase):
    """The unpacked bytes of an xz file, which may have several streams. It does not close the file."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._unpacker = _new()
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ended:
            data = self._next(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
        return 0

    def _next(self, size: int) -> bytes:
        """Return some bytes; none where a stream ends, or more of the file is needed."""
        unpacker = self._unpacker
        if unpacker.eof:
            return self._next_stream(unpacker.unused_data, size)
        packed = self._raw.read(_PIECE) if unpacker.needs_input else b""
        if unpacker.needs_input and not packed:
            raise EOFError("the file ended before the end-of-stream marker was reached")
        return self._unpacked(packed, size)

    def _next_stream(self, rest: bytes, size: int) -> bytes:
        while not (rest := rest.lstrip(b"\0")):  # padding between streams
            rest = self._raw.read(_PIECE)
            if not rest:
                self._ended = True
                return b""
        self._unpacker = _new()
        try:
            return self._unpacked(rest, size)
        except lzma.LZMAError:  # the bytes that follow are not a stream: leave them out, as xz and Python do
            self._ended = True
            return b""

    def _unpacked(self, packed: bytes, size: int) -> bytes:
        try:
            return self._unpacker.decompress(packed, size)
        except lzma.LZMAError as error:
            if "memory usage limit" not in str(error).lower():
                raise
            raise NotThisFormat(
                f"needs more than {_MEMORY >> 20} MiB of memory to unpack, because its xz dictionary is so large; "
                "pack it with xz -9 or less"
            ) from None


def _new() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
