"""Paths as text: join them, split them, and turn them into locations.

A path is an absolute path of the local file system, or a URI of an object store without options (``s3://bucket/a``).
Paths are strings, because there are many of them and a location in the catalog is a string.
"""

from __future__ import annotations

from typing import Final

from metastore.crawl.files.filesystems import is_uri

__all__ = ["base_name", "is_local", "join", "location_of", "path_of"]

_SCHEME: Final = "file://"


def join(folder: str, *names: str) -> str:
    """Return the path of ``names`` below ``folder``."""
    return "/".join((folder.rstrip("/"), *names)) if names else folder


def base_name(path: str) -> str:
    """Return the last name of ``path``; "" for the root of the file system."""
    return path.rpartition("/")[2]


def location_of(path: str) -> str:
    """Return a path as the location of a table: a URI as Hadoop writes it, nothing percent-encoded."""
    return path if is_uri(path) else f"{_SCHEME}{path}"


def path_of(location: str) -> str:
    """Return the path of a location: the reverse of :func:`location_of`."""
    return location.removeprefix(_SCHEME)


def is_local(location: str) -> bool:
    """Return whether a location is in the local file system."""
    return location.startswith(_SCHEME)
