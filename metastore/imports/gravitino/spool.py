"""Keep objects in a temporary file while the rest is read: a metalake may have more of them than memory holds."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, TypeVar

__all__ = ["spooled"]

T = TypeVar("T")
_CHUNK: Final = 100


@contextmanager
def spooled(things: Iterable[T]) -> Iterator[Iterator[T]]:
    """Read all ``things``, and give an iterator over copies of them. The file has no name and is this process's own."""
    with tempfile.TemporaryFile() as file:
        every = iter(things)
        while some := list(islice(every, _CHUNK)):  # in a chunk, the field names are written once
            pickle.dump(some, file, pickle.HIGHEST_PROTOCOL)
        file.seek(0)
        yield _read(file)


def _read(file: Any) -> Iterator[Any]:
    while True:
        try:
            yield from pickle.load(file)  # noqa: S301  (this process wrote it)
        except EOFError:
            return
