"""A file on disk or in an object store, opened for reading with few requests.

A small file in an object store is fetched once, as a whole; a larger one is read in blocks. Use ``arrow()`` to read
only the end (a footer).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

import pyarrow as pa

from metastore.crawl.files.filesystems import Options, filesystem_of, is_uri, why
from metastore.errors import InvalidArgument

__all__ = ["InputFile", "NotReadable"]

_SMALL: Final = 1 << 24
"""The size in bytes up to which a file is fetched as a whole."""
_BLOCK: Final = 1 << 22
"""The bytes of one request for a part of a larger file."""


class NotReadable(Exception):
    """The file cannot be fetched. The message says why, in one line."""


@dataclass
class InputFile:
    """The file at ``path``, of ``size`` bytes."""

    path: str
    size: int
    options: Options = field(repr=False)
    _content: bytes | None = field(default=None, repr=False)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for a reader that needs most bytes, from the start. The stream can seek."""
        if not is_uri(self.path):
            with Path(self.path).open("rb") as local:
                yield local
            return
        if self.size > _SMALL:
            with self.arrow() as remote, io.BufferedReader(remote, _BLOCK) as buffered:
                yield cast("IO[bytes]", buffered)
            return
        if self._content is None:
            with self.arrow() as remote:
                self._content = _fetched(remote)
        yield io.BytesIO(self._content)

    def arrow(self) -> Any:
        """Open the file with pyarrow, to read some parts. Use it in a ``with``."""
        if not is_uri(self.path):
            return pa.OSFile(self.path)
        try:
            filesystem, inside = filesystem_of(self.path, self.options)
            return filesystem.open_input_file(inside)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException, InvalidArgument) as error:
            raise NotReadable(f"cannot be read: {why(error)}") from None


def _fetched(remote: Any) -> bytes:
    try:
        content: bytes = remote.read()
    except OSError as error:
        raise NotReadable(f"cannot be read: {why(error)}") from None
    return content
