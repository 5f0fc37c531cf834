"""The row name of a data set in the catalog, and the signature of its files. Pure.

The *row name* is the location. If the location is too long or is not a clean name, the row name is its beginning and a
hash. In both cases it begins like the location of each folder above, so the rows below a folder are listed by prefix.

The *signature* is a hash over name, size and time (or ETag) of each file, and over the version of the rules by which
files are read. If the signature is unchanged, the files need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from unicodedata import category

from metastore.crawl.files.discover import File
from metastore.crawl.files.places import location_of
from metastore.errors import InvalidArgument
from metastore.names import MAX_NAME, clean_name

__all__ = ["RULES", "location_row", "prefix_of", "row_name", "signature_of"]

RULES: Final = 4
"""The version of the rules by which files become tables. After a new version a crawl reads everything again."""

_REFUSED: Final = ("Cc", "Cs")
_HASH: Final = 16
_PREFIX: Final = MAX_NAME - 2 * _HASH - 1


def row_name(path: str) -> str:
    """Return the name of the row of the data set at ``path``."""
    return location_row(location_of(path))


def location_row(location: str) -> str:
    """Return the name of the row of the data set with this location."""
    try:
        if clean_name(location) == location:
            return location
    except InvalidArgument:
        pass
    digest = blake2b(location.encode(errors="surrogatepass"), digest_size=_HASH).hexdigest()
    return f"{_beginning(location)}#{digest}"


def prefix_of(path: str) -> str:
    """Return the common prefix of the row names of ``path`` and of everything below it."""
    return _beginning(location_of(path))


def _beginning(location: str) -> str:
    shown = location if location.isprintable() else "".join("?" if category(c) in _REFUSED else c for c in location)
    return clean_name(shown[:_PREFIX].rstrip() or "?")


def signature_of(files: Iterable[File], unlisted: Iterable[str] = (), *, incomplete: bool = False) -> str:
    """Return the signature of a data set of ``files``.

    ``unlisted`` are names of other files that cannot be used. ``incomplete``: one of its folders could not be listed.
    """
    digest = blake2b(f"{RULES} {incomplete}\n".encode(), digest_size=_HASH)
    for file in files:
        stamp = getattr(file, "etag", None) or file.mtime_ns
        digest.update(f"{len(file.name)} {file.name} {file.size} {stamp}\n".encode(errors="surrogatepass"))
    for name in unlisted:
        digest.update(f"{len(name)} {name} unlisted\n".encode(errors="surrogatepass"))
    return digest.hexdigest()
