"""Reach the files of tables, and choose where new ones go. A server runs no code that a table names."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from pyiceberg.catalog import URI, WAREHOUSE_LOCATION
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Identifier, Properties

from metastore.pyiceberg.naming import shown

__all__ = ["Places", "folder"]

_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%")
_DOTS: Final = (".", "..")


def folder(name: str) -> str:
    """Return the folder of a name: itself, unless it would lead elsewhere, or to the folder of another name."""
    if name in _DOTS:
        return name.replace(".", "%2E")
    return name if "/" not in name and "%" not in name else "".join(map(_quoted, name))


def _quoted(char: str) -> str:
    return quote(char, safe=_SAFE) if char.isascii() else char


class Places:
    """The file systems of one catalog, by its properties.

    ``trusting``: the properties of a table may name an endpoint, and classes of Python to load. A server does not trust
    them, because its clients write them: they could get the server's credentials, or run code of their choice. It also
    refuses a relative location, which would lie in its working folder.
    """

    def __init__(self, properties: Properties, *, trusting: bool) -> None:
        # the store's URI, which may have a password, stays here
        self._own = {key: value for key, value in properties.items() if key != URI}
        self._trusting = trusting

    @property
    def serves(self) -> bool:
        """Whether it is a server that asks, for clients in any language."""
        return not self._trusting

    def default(self, names: Identifier, above: str | None) -> str:
        """Return where a new table or view goes that names no location: below its namespace's, or in the warehouse.

        Raises ValueError if neither is there.
        """
        if above:
            return f"{above.rstrip('/')}/{folder(names[-1])}"
        if warehouse := self._own.get(WAREHOUSE_LOCATION):
            return f"{warehouse.rstrip('/')}/{folder(shown(names[:-1]))}/{folder(names[-1])}"
        raise ValueError("No default path is set, please specify a location when creating a table")

    def io(self, properties: Properties, location: str) -> FileIO:
        """Return the file system of a location. Raises ValueError for a relative one in a server."""
        self._check(location)
        return load_file_io({**self._own, **properties} if self._trusting else self._own, location)

    def locations(self, location: str, properties: Properties) -> LocationProvider:
        """Return what says where new files of a table go. Raises ValueError for a relative location in a server."""
        self._check(location)
        if not self._trusting:
            loaded = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
            properties = {key: value for key, value in properties.items() if key != loaded}
        return load_location_provider(location, properties)

    def _check(self, location: str) -> None:
        if not self._trusting and not location.startswith("/") and not urlsplit(location).scheme:
            raise ValueError(f"location: {location[:200]!r} is relative; name a place such as s3://bucket/folder")
