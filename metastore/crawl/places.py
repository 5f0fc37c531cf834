"""Local paths as text: joined and taken apart, and whether anything is there.

Paths are kept as strings: there are many of them, and a location in the catalog is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["base_name", "is_gone", "join", "location_of"]

_SCHEME: Final = "file://"


def join(folder: str, *names: str) -> str:
    """Return the path of ``names`` below ``folder``."""
    return "/".join((folder.rstrip("/"), *names)) if names else folder


def base_name(path: str) -> str:
    """Return the last name of ``path``; "" for the root of the file system."""
    return path.rpartition("/")[2]


def location_of(path: str) -> str:
    """Return a local path as the location of a table: a URI as Hadoop writes it, nothing percent-encoded."""
    return f"{_SCHEME}{path}"


def is_gone(location: str) -> bool:
    """Tell whether ``location`` is a local path where nothing is any more; what is elsewhere counts as there."""
    return location.startswith(_SCHEME) and not Path(location.removeprefix(_SCHEME)).exists()
