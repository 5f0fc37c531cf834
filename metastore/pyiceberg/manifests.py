"""Read lists of manifests, and manifests. A server bounds what they unpack to, because a client writes them.

PyIceberg unpacks each block of an Avro file at once: 1.5 MB become gigabytes.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from metastore.pyiceberg.confined import Confined

__all__ = ["entries_of", "manifests_of"]

_LARGEST: Final = 64 << 20
"""How many bytes such a file may have in a server, as it is and unpacked."""
_PART: Final = 1 << 20


def manifests_of(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests in the list of a snapshot.

    PyIceberg's own method returns for each path what the process read first, in whichever list. So a user could name
    the manifest of another table in a list of its own, as an empty one, and that table would lose its rows.
    """
    return list(read_manifest_list(_bounded(io).new_input(snapshot.manifest_list)))


def entries_of(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return what a manifest says of its files, also of those that are deleted."""
    return manifest.fetch_manifest_entry(_bounded(io), discard_deleted=False)


def _bounded(io: FileIO) -> FileIO:
    return _Bounded(io) if isinstance(io, Confined) else io


class _Bounded(FileIO):
    """A file system for reading Avro files. It reads each one whole, and refuses those that are too large."""

    def __init__(self, io: FileIO) -> None:
        super().__init__(io.properties)
        self._io = io

    def new_input(self, location: str) -> InputFile:
        """Return a file to read. Raises ValidationError."""
        with self._io.new_input(location).open() as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST or _unpacks_to(text) > _LARGEST:
            raise ValidationError(f"the file {location} has more than {_LARGEST} bytes; no manifest is so large")
        return _Read(location, text)

    def new_output(self, location: str) -> OutputFile:
        """Nothing is written here."""
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Nothing is deleted here."""
        raise NotImplementedError


class _Read(InputFile):
    """A file whose bytes have been read."""

    def __init__(self, location: str, text: bytes) -> None:
        super().__init__(location)
        self._text = text

    def __len__(self) -> int:
        return len(self._text)

    def exists(self) -> bool:
        """Whether it is there."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """Return its bytes."""
        return BytesIO(self._text)


def _unpacks_to(text: bytes) -> int:
    """Return how many bytes the blocks of an Avro file unpack to; of too many, only that they are too many."""
    decoder = new_decoder(text)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    parts = _PARTS.get(header.meta.get(AVRO_CODEC_KEY, ""), _plain)
    size = 0
    while True:
        try:
            decoder.read_int()  # the number of records
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
    """Yield what a block says itself at its beginning: the reader makes room for so many bytes, and expects as many."""
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
"""By the name of a codec: what yields the sizes of the parts of a block, unpacked."""
