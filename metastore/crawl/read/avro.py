"""Read an Avro file's schema and number of rows: the header, and the row count of each block, but no row.

A file is a header (metadata, with the schema as JSON; a mark of 16 bytes) and blocks. A block has the number of rows
and of bytes, both as zigzag varints, the bytes, and the mark (Avro 1.11 specification, "Object Container Files").
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

from metastore.columns.column import Column
from metastore.crawl.files.filesystems import why
from metastore.crawl.files.limits import bounded
from metastore.crawl.files.open import InputFile, NotReadable
from metastore.crawl.files.text import NotThisFormat
from metastore.crawl.read.avro_types import avro_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_avro"]

_MAGIC: Final = b"Obj\x01"
_MARK: Final = 16
_VARINT: Final = 10
"""The most bytes of a varint of 64 bits."""
_LONGEST: Final = 200
_HEADER: Final = 1 << 26
"""The most bytes of a header. A damaged header can claim more than fit into memory."""
_TRUNCATED: Final = "is truncated: its last block is not whole"


def read_avro(file: InputFile) -> tuple[tuple[Column, ...], int]:
    """Return the columns and the number of rows."""
    with file.open() as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise NotThisFormat("is not Avro, although its name says so")
        stream.seek(0)
        columns = avro_columns(_schema(stream))
        stream.seek(-_MARK, 1)
        mark = stream.read(_MARK)
        return columns, sum(_blocks(stream, mark, file.size))


def _schema(stream: IO[bytes]) -> Any:
    """Return the schema, and leave ``stream`` after the header."""
    try:
        import fastavro  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        raise NotReadable(
            "cannot be read: Avro needs the package fastavro: pip install 'versioned-metastore[spark]'"
        ) from None
    try:
        head = bounded(stream, _HEADER, f"has a header of more than {_HEADER >> 20} MiB")
        return fastavro.reader(head).writer_schema
    except NotThisFormat:
        raise
    except Exception as error:  # noqa: BLE001 (a KeyError, a ValueError, a RecursionError: the header can be anything)
        raise NotThisFormat(f"has a damaged header: {why(error)[:_LONGEST]}") from None


def _blocks(stream: IO[bytes], mark: bytes, size: int) -> Iterator[int]:
    """Yield the number of rows of each block."""
    while (rows := _varint(stream)) is not None:
        length = _varint(stream)
        if length is None:
            raise NotThisFormat(_TRUNCATED)
        if rows < 0 or length < 0:
            raise NotThisFormat("is damaged: a block has a negative size")
        if length > size or stream.seek(length, 1) + _MARK > size:
            raise NotThisFormat(_TRUNCATED)
        if stream.read(_MARK) != mark:
            raise NotThisFormat("is damaged: a block does not end with the mark of the file")
        yield rows


def _varint(stream: IO[bytes]) -> int | None:
    """Read a zigzag varint; None at the end of the file."""
    value = 0
    for at in range(_VARINT):
        byte = stream.read(1)
        if not byte:
            if at:
                raise NotThisFormat(_TRUNCATED)
            return None
        value |= (byte[0] & 0x7F) << (7 * at)
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise NotThisFormat("is damaged: a number in it has no end")
