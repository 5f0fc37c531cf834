"""Where an export goes to and an import comes from: a stream of bytes, or the name of a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from metastore.arguments import shown
from metastore.errors import InvalidArgument

__all__ = ["Place", "reading", "writing"]

Place = BinaryIO | str | os.PathLike[str]
"""An open binary stream, which stays open, or the name of a file."""


@contextmanager
def writing(to: Place) -> Iterator[tuple[BinaryIO, bool]]:
    """Give a stream to write to, and whether it is a file that may hold the beginning of an export."""
    if not isinstance(to, str | os.PathLike):
        _require_binary(to, "write")
        yield to, False
        return
    path = Path(to)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):  # a pipe, or /dev/null
        with path.open("wb") as stream:
            yield stream, False
        return
    with path.open("r+b" if path.exists() else "w+b") as stream:
        yield stream, True
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def reading(source: Place) -> Iterator[BinaryIO]:
    """Give a stream to read from."""
    if not isinstance(source, str | os.PathLike):
        _require_binary(source, "read")
        yield source
        return
    with Path(source).open("rb") as stream:
        yield stream


def _require_binary(stream: object, what: str) -> None:
    if not callable(getattr(stream, what, None)) or hasattr(stream, "encoding"):
        raise InvalidArgument(f"an export is bytes: give the name of a file or a binary stream, not {shown(stream)}")
