"""Keep a server's files inside the folders of its warehouse.

A client names files in many fields: a location, a pointer, a log of older metadata, manifest lists, statistics. A
server that followed each of them would read, write and delete, with its own credentials, any file that a client names.
So it reaches files only through :class:`Confined`, which checks every path. The check resolves ``..``, and follows
links on a local disk. It reads a path twice: with and without the part that a URL parser treats as a query. Percent
escapes are plain characters: no file system that PyIceberg loads decodes them, and folders with odd names contain them.

Where users write into the folders of their own tables, one of them could make a link there to the folder of another
table. So in such a warehouse no link below the folder is followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from posixpath import normpath
from typing import Final
from urllib.parse import urlsplit

from pyiceberg.exceptions import ForbiddenError
from pyiceberg.io import FileIO, InputFile, OutputFile

from metastore.leases.objects.buckets import bucket_of

__all__ = ["END", "Confined", "Folders", "is_same_place", "keys_of"]

END: Final = "\0"
"""The end of each part of a place's key. No name contains it."""


class Folders:
    """The folders below which a server's files lie. ``links``: links on a local disk may lead from one to another."""

    def __init__(self, roots: Iterable[str], *, links: bool = True) -> None:
        self._roots = tuple(_Place.of(root) for root in roots if root)
        self._links = links

    def check(self, location: str) -> None:
        """Raise ForbiddenError unless a location lies below one of the folders, however it is read."""
        readings = _readings(location)
        if not all(any(reading.is_below(root) for root in self._roots) for reading in readings):
            raise ForbiddenError(
                f"{location[:200]!r} does not lie in the warehouse; name a place below the warehouse's folder, or "
                "let the operator allow this one: metastore serve --allow-location"
            )
        if not self._links and not all(any(one.is_named_below(root) for root in self._roots) for one in readings):
            raise ForbiddenError(
                f"{location[:200]!r} has a link in it, which a user may have made; the operator may allow the folder "
                "that is a link: metastore serve --allow-location"
            )

    def unlinked(self, location: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the folder on a local disk in which a checked location lies, and the rest of its path.

        None: it lies elsewhere, or links are followed, or a URL parser finds a query, a fragment or a host in it.
        """
        place = _Place.of(location)
        if self._links or not place.is_local or any(char in location for char in "?#") or urlsplit(location).netloc:
            return None
        found = [below for root in self._roots for below in place.named_below(root)]
        # take the deepest root: the root may be a link itself, but no part of the rest of the path may be one
        return min(found, key=lambda below: len(below[1]), default=None)


class _Place:
    """A scheme, the bucket of an object store, and the parts of a path, as named and with all links resolved."""

    def __init__(self, store: tuple[str, ...], path: str, real: str) -> None:
        self._store = store
        self._named, self._parts = (tuple(part for part in one.split("/") if part) for one in (path, real))

    @classmethod
    def of(cls, location: str) -> _Place:
        scheme, colon, rest = location.partition(":")
        if not colon or "/" in scheme:
            scheme, rest = "", location
        scheme, bucket = scheme.lower() or "file", ""
        if rest.startswith("//"):
            bucket, _, rest = rest[2:].partition("/")
        path = real = normpath("/" + rest.lstrip("/"))
        if scheme == "file":
            real, bucket = os.path.realpath(path), ""  # like PyIceberg, ignore the host of a file URL
        return cls(bucket_of(scheme, bucket), path, real)

    @property
    def key(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A value that is equal for all spellings of one place."""
        return self._store, self._parts

    @property
    def is_local(self) -> bool:
        """Whether the place is on a local disk."""
        return self._store[0] == "file"

    @property
    def path(self) -> str:
        """The path on a local disk."""
        return "/" + "/".join(self._parts)

    def is_below(self, root: _Place) -> bool:
        """Whether this place is inside the folder ``root``, and not the folder itself."""
        count = len(root._parts)
        return self._store == root._store and len(self._parts) > count and self._parts[:count] == root._parts

    def named_below(self, root: _Place) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the path of ``root`` and the rest of this path, if this place is named below ``root``.

        Links are not followed.
        """
        for start in {root._named, root._parts}:
            if self._named[: len(start)] == start and len(self._named) > len(start):
                yield root.path, self._named[len(start) :]

    def is_named_below(self, root: _Place) -> bool:
        """Whether this place is below ``root``, and no part of its path below ``root`` is a link."""
        rest = self._parts[len(root._parts) :]
        return self.is_below(root) and self._named in (root._named + rest, root._parts + rest)


def _readings(location: str) -> list[_Place]:
    """Return the places that a location may mean, with and without the part that a URL parser treats as a query."""
    url = urlsplit(location)._replace(query="", fragment="").geturl()
    return [_Place.of(text) for text in {location, url}]


def keys_of(location: str) -> tuple[str, ...]:
    """Return one key for each meaning of a location. The key of a folder is a prefix of the keys below it."""
    return tuple(END.join((*store, *parts, "")) for store, parts in (one.key for one in _readings(location)))


def is_same_place(one: str, other: str) -> bool:
    """Whether two locations are one place, however they are spelled."""
    return _Place.of(one).key == _Place.of(other).key


def _require_no_pipe(location: str) -> None:
    """Raise ForbiddenError for a pipe or a device on a local disk, because opening or reading it might never end."""
    place = _Place.of(location)
    if place.is_local:
        try:
            mode = Path(place.path).stat().st_mode
        except OSError:
            return  # the reader reports why it cannot read the file
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ForbiddenError(f"{location[:200]!r} is not a file")


class Confined(FileIO):
    """A file system that reaches only files below some folders."""

    def __init__(self, io: FileIO, folders: Folders) -> None:
        super().__init__(io.properties)
        self._io, self._folders = io, folders

    def new_input(self, location: str) -> InputFile:
        """Return a file to read. Raises ForbiddenError."""
        self._folders.check(location)
        _require_no_pipe(location)
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write. Raises ForbiddenError."""
        self._folders.check(location)
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file. Raises ForbiddenError."""
        text = location if isinstance(location, str) else location.location
        self._folders.check(text)
        if (place := self._folders.unlinked(text)) is None:
            self._io.delete(location)
        else:
            _delete(*place)


def _delete(root: str, parts: tuple[str, ...]) -> None:
    """Delete a file below a folder. It follows no link, not even one that was made after the place was checked."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        os.unlink(parts[-1], dir_fd=folder)
    finally:
        os.close(folder)
