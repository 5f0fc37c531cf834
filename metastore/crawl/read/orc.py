"""Read an ORC file's schema and number of rows from its footer alone. pyarrow does not expose its statistics."""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.orc

from metastore.columns.arrow import columns_from_arrow
from metastore.columns.column import Column
from metastore.crawl.files.open import InputFile
from metastore.crawl.read.orc_tail import OrcFile

__all__ = ["read_orc", "why_not_orc"]

_MAGIC = b"ORC"


def read_orc(file: InputFile) -> tuple[tuple[Column, ...], int]:
    """Return the columns and the number of rows."""
    with file.arrow() as source:
        end = OrcFile(source)
        end.check()
        reader = pyarrow.orc.ORCFile(pa.PythonFile(end, mode="r"))
        schema, rows = reader.schema, reader.nrows
    return _columns(schema.remove_metadata().serialize().to_pybytes()), rows


def why_not_orc(file: InputFile) -> str | None:
    """Return why pyarrow refuses a file, if its first bytes show it; else None."""
    with file.arrow() as source:
        head = source.read(len(_MAGIC))
    return None if head == _MAGIC else "is not ORC, although its name says so"


@functools.lru_cache(maxsize=256)
def _columns(serialized: bytes) -> tuple[Column, ...]:
    return columns_from_arrow(pa.ipc.read_schema(pa.BufferReader(serialized)))
