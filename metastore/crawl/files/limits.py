"""The limits of unpacking: a packed file of a few kilobytes can hold billions of rows.

A file may unpack to ``max_ratio`` times its size and to ``max_unpacked`` bytes, whichever is less. Up to 16 MiB any
ratio is allowed, because small files of equal rows are common. A file that unpacks to more is a failure in the report.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, cast

from metastore.arguments import positive_integer
from metastore.crawl.files.text import NotThisFormat

__all__ = ["MAX_RATIO", "MAX_UNPACKED", "Limits", "bounded"]

MAX_UNPACKED: Final = 1 << 36
MAX_RATIO: Final = 200
_ALWAYS: Final = 1 << 24
"""Up to this size (bytes), a file may unpack to any multiple of its own size."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that the user chooses: bytes of text in one file, and their ratio to the file's size."""

    max_unpacked: int = MAX_UNPACKED
    max_ratio: int = MAX_RATIO

    def __post_init__(self) -> None:
        positive_integer(self.max_unpacked, "max_unpacked")
        positive_integer(self.max_ratio, "max_ratio")

    @contextmanager
    def unpacked(self, opener: Callable[[], AbstractContextManager[IO[bytes]]], size: int) -> Iterator[IO[bytes]]:
        """Open the text that is packed in a file of ``size`` bytes; reading beyond the limits raises NotThisFormat."""
        with opener() as stream:
            yield bounded(stream, *self.most(size))

    def most(self, size: int) -> tuple[int, str]:
        """Return how many bytes a file of ``size`` may unpack to, and the reason that more is refused."""
        by_ratio = max(_ALWAYS, self.max_ratio * size)
        if by_ratio < self.max_unpacked:
            what = f"more than {self.max_ratio} times its {size:,} bytes, as a decompression bomb does"
            return by_ratio, f"unpacks to {what}; --max-ratio allows more"
        return self.max_unpacked, f"unpacks to more than {self.max_unpacked:,} bytes; --max-unpacked allows more"


def bounded(stream: Any, most: int, reason: str) -> IO[bytes]:
    """Return ``stream`` limited to ``most`` bytes; reading more raises NotThisFormat with the ``reason``."""
    return cast("IO[bytes]", _Bounded(stream, most, reason))


class _Bounded(io.RawIOBase):
    def __init__(self, stream: Any, most: int, reason: str) -> None:
        self.stream, self.left, self.reason = stream, most, reason

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read(min(len(buffer), self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise NotThisFormat(self.reason)
        buffer[: len(data)] = data
        return len(data)
