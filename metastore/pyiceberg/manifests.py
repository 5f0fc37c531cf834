"""Read manifest lists and manifests. A server bounds their unpacked size, because clients write them.

PyIceberg unpacks each block of an Avro file at once, so 1.5 MB can become gigabytes. Its C decoder trusts each length
in a file. A wrong length returns memory beyond the file, or crashes the process. So each length is checked first.
"""

from __future__ import annotations

import bz2
import sys
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Final, Self, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFile, AvroFileHeader, Block
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from metastore.pyiceberg.confined import Confined

__all__ = ["entries_of", "manifests_of"]

T = TypeVar("T", bound=Record)
_Made = dict[int, Callable[..., Any]]
"""The classes of records or of values, by field id."""
_LARGEST: Final = 64 << 20
"""The largest size of such a file in a server, both packed and unpacked (bytes)."""
_VALUES: Final = 4_000_000
"""The most values in such a file in a server, without lists of numbers. One byte can become an object of 200 bytes."""
_SCHEMA: Final = 1 << 20
"""The largest schema of such a file (bytes)."""
_PART: Final = 1 << 20


def manifests_of(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests in the list of a snapshot. Raises ValidationError.

    PyIceberg's own method keeps manifests by path, and returns the one that the process read first, from any list. A
    user could name another table's manifest in a list of its own, as an empty one, and that table would lose its rows.
    """
    types: _Made = {-1: ManifestFile, 508: PartitionFieldSummary}
    schema = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
    return _records(io, snapshot.manifest_list, schema, types, {517: ManifestContent})


def entries_of(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of a manifest as the file has them, deleted data files included. Raises ValidationError."""
    enums: _Made = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    schema = MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
    return _records(io, manifest.manifest_path, schema, {-1: ManifestEntry, 2: DataFile}, enums)


def _records(io: FileIO, location: str, schema: Schema, types: _Made, enums: _Made) -> list[Any]:
    """Read a whole file.

    Raises ValidationError for another kind of file and, in a server, for one that is too large or has too many values.
    """
    bounded = isinstance(io, Confined)
    with io.new_input(location).open() as stream:
        text = stream.read(_LARGEST + 1) if bounded else stream.read()
    try:
        if bounded and (len(text) > _LARGEST or _unpacks_to(text) > _LARGEST):
            raise _Large(f"{_LARGEST} bytes; no manifest is so large")
        file = _File[Any](_Read(location, text), schema, types, enums)
        file.values = _VALUES if bounded else sys.maxsize
        with file:
            return list(file)
    except _Large as error:
        raise ValidationError(f"the file {location} has more than {error}") from None
    except Exception as error:  # noqa: BLE001  (whatever PyIceberg's reader raises for what is not such a file)
        raise ValidationError(f"the file {location} is not of manifests: {type(error).__name__}") from None


class _Large(ValueError):
    """A file is larger than any that a catalog wrote. The message names the limit."""


class _Read(InputFile):
    """A file whose bytes have been read."""

    def __init__(self, location: str, text: bytes) -> None:
        super().__init__(location)
        self._text = text

    def __len__(self) -> int:
        return len(self._text)

    def exists(self) -> bool:
        """Return True: the bytes have been read."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """Return a stream of the bytes."""
        return BytesIO(self._text)


class _Decoder(BinaryDecoder):
    """PyIceberg's decoder, for some bytes. A read past their end raises EOFError.

    ``left``: how many values may follow.
    """

    def __init__(self, text: bytes, left: int = sys.maxsize) -> None:
        self._end = len(text)
        # PyIceberg's decoder checks no length, so pad with zeros: a call reads at most one number for each byte
        self._decoder = new_decoder(text + bytes(len(text) + 16))
        self.left = left

    def tell(self) -> int:
        """Return the position."""
        return self._decoder.tell()

    def read(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        self._require(n)
        return self._decoder.read(n)

    def skip(self, n: int) -> None:
        """Pass over ``n`` bytes."""
        self._require(n)
        self._decoder.skip(n)

    def read_int(self) -> int:
        """Return the next number."""
        number = self._decoder.read_int()
        self._require(0)
        return number

    def read_ints(self, n: int) -> tuple[int, ...]:
        """Return the next ``n`` numbers. They do not count as values, because each takes only 8 bytes."""
        self._require(n)  # each number needs at least one byte
        numbers = self._decoder.read_ints(n)
        self._require(0)
        return numbers

    def skip_int(self) -> None:
        """Pass over a number."""
        self.read_int()

    def _require(self, n: int) -> None:
        if not 0 <= n <= self._end - self._decoder.tell():
            raise EOFError
        self.left -= 1
        if self.left < 0:
            raise _Large(f"{_VALUES:,} values; no manifest has so many")


class _File(AvroFile[T]):
    """An Avro file that is read by the decoder above. ``values``: how many values may follow."""

    values: int
    _decoder: _Decoder | None = None
    """The decoder of the current block."""

    def __enter__(self) -> Self:
        with self.input_file.open() as stream:
            self.decoder = _Decoder(stream.read())
        self.header = self._read_header()
        if len(self.header.meta.get("avro.schema", "")) > _SCHEMA:
            raise _Large(f"{_SCHEMA} bytes of a schema; no manifest has so many")
        self.schema = self.header.get_schema()
        assert self.read_schema is not None
        self.reader: Reader = resolve_reader(self.schema, self.read_schema, self.read_types, self.read_enums)
        return self

    def _read_block(self) -> int:
        if self.block is not None and self.decoder.read(SYNC_SIZE) != self.header.sync:
            raise ValueError
        count, text = self.decoder.read_int(), self.decoder.read_bytes()
        if codec := self.header.compression_codec():
            text = codec.decompress(text)
        if self._decoder is not None:
            self.values = self._decoder.left
        self._decoder = _Decoder(text, self.values)
        self.block = Block(self.reader, count, self._decoder)
        return count


def _unpacks_to(text: bytes) -> int:
    """Return how many bytes the blocks of an Avro file unpack to; stop at the first number above the limit."""
    decoder = _Decoder(text)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    parts = _PARTS.get(header.meta.get(AVRO_CODEC_KEY, ""), _plain)
    size = 0
    while True:
        try:
            decoder.read_int()  # skip the number of records
            for part in parts(decoder.read_bytes()):
                size += part
                if size > _LARGEST:
                    return size
            decoder.read(SYNC_SIZE)
        except EOFError:
            return size


def _plain(block: bytes) -> Iterator[int]:
    yield len(block)


def _deflated(block: bytes) -> Iterator[int]:
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    while part := unpacking.decompress(block, _PART):
        yield len(part)
        block = unpacking.unconsumed_tail


def _bzipped(block: bytes) -> Iterator[int]:
    unpacking = bz2.BZ2Decompressor()
    while not unpacking.eof and (part := unpacking.decompress(block, _PART)):
        yield len(part)
        block = b""


def _zstandard(block: bytes) -> Iterator[int]:
    from zstandard import ZstdDecompressor  # noqa: PLC0415  (PyIceberg reads such files only where this is installed)

    with ZstdDecompressor().stream_reader(BytesIO(block)) as stream:
        while part := stream.read(_PART):
            yield len(part)


def _snappy(block: bytes) -> Iterator[int]:
    """Yield the size that a block states at its beginning: the reader allocates and expects this number of bytes."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    yield size


_PARTS: Final[dict[str, Callable[[bytes], Iterator[int]]]] = {
    "deflate": _deflated,
    "bzip2": _bzipped,
    "zstandard": _zstandard,
    "snappy": _snappy,
}
"""Functions by the name of a codec: each yields the unpacked sizes of a block's parts."""
