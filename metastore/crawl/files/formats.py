"""The format, the compression and the table's name that a file's name implies.

The ending alone decides, in upper or lower case:

    .parquet .parq .pq           parquet
    .orc                         orc
    .avro                        avro
    .csv .tsv                    csv, plain or with .gz .bz2 .zst .xz .zip
    .json .jsonl .ndjson         json, likewise
    .zip                         the format of the archive's one file

Everything else has no known format. Spark's hidden names are hidden here too: they begin with a dot, or with an
underscore and have no ``=`` (``_SUCCESS``, ``_temporary``, ``_delta_log``, ``_metadata``), or the file is still being
copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["TYPED", "Format", "format_of", "is_hidden"]

TYPED: Final = frozenset({"parquet", "orc", "avro"})
"""Formats whose files declare the types of their columns, and compress inside. Text formats have inferred types."""

_FORMATS: Final = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd", ".xz": "xz", ".zip": "zip"}
_FOOTERS: Final = frozenset({"parquet", "orc"})


@dataclass(frozen=True, slots=True)
class Format:
    """A known format: its name ("zip" if only the archive shows the format), and its compression.

    ``compression`` is None, gzip, bzip2, zstd, xz or zip; ``file`` is the file's name without the ending of the
    compression, ``stem`` the name without any ending.
    """

    name: str
    compression: str | None
    stem: str
    file: str

    @property
    def is_read_whole(self) -> bool:
        """Whether every byte is read to know the columns, and not just a footer."""
        return self.name not in _FOOTERS


def format_of(name: str) -> Format | None:
    """Return the format that the ending of a file's name implies; None if it is unknown."""
    outer, ending = _split(name)
    compression = _COMPRESSIONS.get(ending)
    file = name if compression is None else outer
    stem, ending = _split(file)
    form = _FORMATS.get(ending)
    if compression is not None and (form in TYPED or not stem):
        form = None
    if form is None and compression == "zip" and outer:
        return Format("zip", "zip", outer, outer)
    return None if form is None or not stem else Format(form, compression, stem, file)


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    return (stem, f".{ending.lower()}") if dot else (name, "")


def is_hidden(name: str) -> bool:
    """Tell whether Spark leaves out a file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
