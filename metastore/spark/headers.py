"""Read the headers of CSV files: the first row of each, on the driver, through Spark's file systems.

It works wherever Spark reads, with the compressions that Spark unpacks. A few kilobytes of each file are read,
several files at a time.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from metastore.errors import InvalidArgument
from metastore.names import clean_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Header", "by_header"]

_BYTES: Final = 1 << 14
_LARGEST: Final = 1 << 22
"""The most bytes that are read to find the end of a header."""
_BLOCK: Final = 1 << 10
_ZSTD: Final = ".zst"
_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Header:
    """The names of columns, as the crawler has them; ``exact``: the file has exactly these names."""

    names: tuple[str, ...]
    exact: bool


def by_header(spark: SparkSession, files: Iterable[str], delimiter: str, encoding: str) -> dict[Header, list[str]]:
    """Group ``files``, percent-encoded URIs, by their headers; those without any row are left out."""
    files = list(files)
    first = _Reader(spark, delimiter, encoding)
    groups: dict[Header, list[str]] = {}
    with ThreadPoolExecutor(_THREADS, "metastore-headers") as pool:
        for file, header in zip(files, pool.map(first, files), strict=True):
            if header is not None:
                groups.setdefault(header, []).append(file)
    if not groups:
        raise InvalidArgument(f"none of its {len(files)} files has a header")
    return groups


class _Reader:
    """Reads a file's header."""

    def __init__(self, spark: SparkSession, delimiter: str, encoding: str) -> None:
        # Python has no other way to Hadoop's file systems and codecs
        self.hadoop: Any = spark._jvm.org.apache.hadoop  # noqa: SLF001
        self.uri: Any = spark._jvm.java.net.URI  # noqa: SLF001
        self.configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self.codecs: Any = self.hadoop.io.compress.CompressionCodecFactory(self.configuration)
        self.delimiter, self.encoding = delimiter, encoding

    def __call__(self, file: str) -> Header | None:
        try:
            return self._first_row(file)
        except (LookupError, TypeError, csv.Error) as error:  # the encoding or the delimiter is unknown
            raise InvalidArgument(f"a header cannot be read: {error}") from None

    def _first_row(self, file: str) -> Header | None:
        size = _BYTES
        while True:
            data = self._head(file, size)
            text = _text(data, self.encoding)
            if len(data) < size or "\n" in text.lstrip() or "\r" in text.lstrip():
                return _header(text, self.delimiter)
            if size >= _LARGEST:
                raise InvalidArgument(f"a header of more than {_LARGEST >> 20} MiB cannot be read: {unquote(file)}")
            size *= 4

    def _head(self, file: str, size: int) -> bytes:
        path = self.hadoop.fs.Path(self.uri(file))
        stream = path.getFileSystem(self.configuration).open(path)
        try:
            if file.endswith(_ZSTD):  # Spark unpacks zstd itself
                return _unpacked(bytes(stream.readNBytes(size)), size)
            codec = self.codecs.getCodec(path)
            unpacked = stream if codec is None else codec.createInputStream(stream)
            return bytes(unpacked.readNBytes(size))
        finally:
            stream.close()


def _unpacked(head: bytes, size: int) -> bytes:
    """Unpack ``head``, the beginning of a file that is compressed with zstd, up to about ``size`` bytes."""
    unpacked = b""
    with pa.CompressedInputStream(pa.BufferReader(head), "zstd") as stream:
        try:
            while len(unpacked) < size and (block := stream.read(_BLOCK)):
                unpacked += block
        except OSError:  # the head of the file ends in the middle of a block
            pass
    return unpacked


def _text(data: bytes, encoding: str) -> str:
    return codecs.getincrementaldecoder(encoding)("replace").decode(data).removeprefix("\ufeff")


def _header(text: str, delimiter: str) -> Header | None:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    written = next((row for row in rows if row), None)
    if written is None:
        return None
    names = [clean_name(name) if (name := cell.strip()) else f"_c{at}" for at, cell in enumerate(written)]
    return Header(tuple(names), names == written)
