"""List the folders and files below the paths that the user gave.

The driver reads only names, sizes and times. In the local file system it scans each folder and looks at each file. In
an object store it lists a whole root, in pages.

A folder that cannot be listed, a link to nothing, and an invalid name become failures, and the walk goes on. Hidden
files (as Spark hides them) are passed over. Files of unknown formats, pipes and sockets count as skipped. Files that
patterns leave out are not counted. All results are in the order of names.

A path that does not exist, and an invalid pattern or option, raise InvalidArgument before anything else happens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from metastore.crawl.files.filesystems import is_uri, split_uri
from metastore.crawl.files.listing import NOT_UTF8, File, Folder, Listing, shown
from metastore.crawl.files.local import LocalWalk
from metastore.crawl.files.patterns import Patterns
from metastore.crawl.files.places import path_of
from metastore.errors import InvalidArgument

__all__ = ["File", "Folder", "Listing", "root_of", "walk"]

_HALF_A_URI: Final = re.compile(r"(s3a?|gc?s|abfss?|hdfs):/")
_MISSING: Final = "there is no folder or file {}; give the path of one that can be read"


def _silent(_folders: int) -> None:
    """Report nothing."""


def walk(
    paths: Iterable[str | os.PathLike[str]],
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    follow_links: bool = False,
    tell: Callable[[int], None] = _silent,
) -> Listing:
    """List everything below ``paths``: folders or files of the local file system, or URIs of object stores.

    ``include`` and ``exclude`` are :mod:`metastore.crawl.files.patterns`, matched with the path from each root.
    ``follow_links``: also follow symbolic links that lead out of ``paths``. ``tell`` is called with the number of local
    folders so far.
    """
    patterns, listing = Patterns.of(include, exclude), Listing()
    for path in paths:
        root = root_of(path, listing.options)
        if root not in listing.roots:
            listing.roots.append(root)
    missing = next((root for root in listing.roots if not is_uri(root) and not _is_there(root)), None)
    if missing is not None:
        raise InvalidArgument(_MISSING.format(missing))
    inside = None if follow_links else [root for root in listing.roots if not is_uri(root)]
    local, stored = LocalWalk(listing, patterns, inside, tell), set[str]()
    for root in listing.roots:
        if not is_uri(root):
            local.walk(root)
        elif not _walk_store(root, listing, patterns, stored):
            raise InvalidArgument(_MISSING.format(root))
    local.finish()
    return listing


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be looked at: {error.strerror or error}") from None


def _walk_store(root: str, listing: Listing, patterns: Patterns, stored: set[str]) -> bool:
    from metastore.crawl.files.object_store import walk_store  # noqa: PLC0415 (pyarrow is an extra)

    return walk_store(root, listing, patterns, stored)


def root_of(path: str | os.PathLike[str], options: dict[str, str]) -> str:
    """Return the root of ``path``, and add its options to ``options``."""
    text = path_of(os.fspath(path))
    if not is_uri(text) or isinstance(path, os.PathLike):
        if _HALF_A_URI.match(text):  # the message does not repeat the path: it may contain secrets
            raise InvalidArgument("give the URI of an object store as a string that begins like s3://, not as a Path")
        # POSIX allows a path to begin with two slashes, and normpath keeps them
        local = re.sub("^//", "/", os.path.normpath(Path(text).absolute()))
        if shown(local) != local:
            raise InvalidArgument(f"{shown(local)} {NOT_UTF8}")
        return local
    root, own = split_uri(text)
    for store, opening in own.items():
        if options.setdefault(store, opening) != opening:
            raise InvalidArgument(f"the paths in {store} have different options; give each path the same")
    return root
