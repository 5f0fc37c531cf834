"""How the files of tables are reached, and where new ones go. A server runs no code that a table names."""

from __future__ import annotations

from pyiceberg.catalog import URI
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Properties

__all__ = ["Places"]


class Places:
    """The file systems of one catalog, by its properties.

    ``trusting``: the properties of a table may name an endpoint, and classes of Python that are loaded. In a server
    they may not: its clients write them, and they would get the server's credentials, or run code of their choice.
    """

    def __init__(self, properties: Properties, *, trusting: bool) -> None:
        # the store's URI, which may have a password, stays here
        self._own = {key: value for key, value in properties.items() if key != URI}
        self._trusting = trusting

    def io(self, properties: Properties, location: str) -> FileIO:
        """Return the file system of a location."""
        return load_file_io({**self._own, **properties} if self._trusting else self._own, location)

    def locations(self, location: str, properties: Properties) -> LocationProvider:
        """Return what says where new files of a table go."""
        if not self._trusting:
            loaded = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
            properties = {key: value for key, value in properties.items() if key != loaded}
        return load_location_provider(location, properties)
