"""What a file's name says: whether Spark would read it, in which format, and how a table of it is named.

A format is told by the ending alone, in any case of letters:

    .parquet .parq .pq           parquet
    .csv .tsv                    csv, plain or .gz
    .json .jsonl .ndjson         json, plain or .gz

Everything else has no known format. Hidden is what Spark hides: names that begin with a dot, or with an underscore
and hold no ``=`` (``_SUCCESS``, ``_temporary``, ``_delta_log``, ``_metadata``), and files still being copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Format", "format_of", "is_hidden"]

_FORMATS: Final = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSIONS: Final = {".gz": "gzip"}
_COMPRESSED: Final = frozenset({"csv", "json"})


@dataclass(frozen=True, slots=True)
class Format:
    """A known format: its name, how the file is compressed around it, and the file's name without its ending."""

    name: str
    compression: str | None
    stem: str


def format_of(name: str) -> Format | None:
    """Return what the ending of the file name says, or None for no known format."""
    stem, ending = _split(name)
    compression = _COMPRESSIONS.get(ending)
    if compression is not None:
        stem, ending = _split(stem)
    found = _FORMATS.get(ending)
    if found is None or not stem or (compression and found not in _COMPRESSED):
        return None
    return Format(found, compression, stem)


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    return (stem, f".{ending.lower()}") if dot else (name, "")


def is_hidden(name: str) -> bool:
    """Tell whether Spark leaves a file or folder of this name out."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
