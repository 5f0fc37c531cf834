"""The scope of a user delegation SAS on Azure: a directory, and the permissions of its key there. Pure.

A SAS with ``sr=d`` opens a directory and everything below it, in an account with a hierarchical namespace. Its
signature covers the directory's path as a whole, so no character of it is a pattern, and ``a`` does not open ``ab``
(https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from metastore.serve.iceberg.folders import is_plain
from metastore.serve.iceberg.rights import READS, WRITES

__all__ = ["Directory", "directory"]

_LOCATION: Final = re.compile(r"abfss?://([a-z0-9](?:-?[a-z0-9]){2,62})@([^/@]+)/(.+)", re.DOTALL)
_CHANGED: Final = re.compile(r"\\|\.(?=/|$)")
"""The parts of a path that Azure changes: a backslash, and dots at the end of a part."""
_LONGEST: Final = 1024
"""How many characters the name of a file may have."""
_PERMISSIONS: Final = ((READS, "r"), (WRITES, "acwd"), (READS, "l"))
"""Azure accepts the permissions in this order only: read; add, create, write and delete; list."""


@dataclass(frozen=True)
class Directory:
    """A directory of a container, without slashes around it, and the letters of the permissions there."""

    container: str
    path: str
    permissions: str


def directory(location: str, rights: Collection[str], host: str) -> Directory | None:
    """Return the scope of a key for a table's location. ``host``: that of the account.

    Return None if no key can open this location alone. Then it is not below a container of this account, clients read
    its path differently, or it is too long; or the user has no right. Azure takes a backslash for a slash, and drops
    the dots at the end of a part.
    """
    found = _LOCATION.fullmatch(location.rstrip("/"))
    permissions = "".join(letters for right, letters in _PERMISSIONS if right in rights)
    if found is None or found[2] != host or not permissions:
        return None
    path = found[3]
    if not is_plain(path) or _CHANGED.search(path) or len(path) > _LONGEST:
        return None
    return Directory(found[1], path, permissions)
