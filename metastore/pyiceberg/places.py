"""Reach the files of tables, and choose places for new ones. A server runs no code that a table names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Final
from urllib.parse import quote, urlsplit

from cachetools import LRUCache
from pyiceberg.catalog import URI, WAREHOUSE_LOCATION
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from metastore.clock import SYSTEM
from metastore.pyiceberg.confined import Confined, Folders, is_same_place
from metastore.pyiceberg.naming import shown

__all__ = [
    "Places",
    "check_beside",
    "check_moved",
    "check_next",
    "check_own",
    "check_own_metadata",
    "check_own_updates",
    "check_same_place",
    "chosen_in",
    "folder",
    "is_first",
]

_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%?#")
_DOTS: Final = (".", "..")
_PLACES: Final = ("write.metadata.path", "write.data.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of tables that name folders."""
_PART: Final = re.compile("([0-9a-f]{32})([0-9a-f]{16})")
"""The unique part of a user's folder: a UUIDv7, and a mark that is derived from the user's name."""
_CHOSEN: Final = re.compile("-[0-9a-f]{12}7[0-9a-f]{19}([0-9a-f]{16})?/")
"""The end of the name of a folder that a server chose for a table or a view."""
_AHEAD: Final = 60 * 1000
"""How far the clock of the server that chose a folder may be ahead of this one's (ms)."""
_HOLDS: Final = 24 * 3600 * 1000 - _AHEAD
"""How long a user may name a folder that the server chose for a staged table: to commit it, to register it (ms).

Less than a day passes from the first use to the end of this time, and gc keeps the note of the use for a day. """


def folder(name: str) -> str:
    """Return the folder for a name. A name that would lead elsewhere, or to the folder of another name, is escaped.

    PyIceberg reads a location as a URL, and drops its query and its fragment.
    """
    if name in _DOTS:
        return name.replace(".", "%2E")
    return name if not any(char in name for char in "/%?#") else "".join(map(_quoted, name))


def chosen_in(location: str) -> list[str]:
    """Return the ends of the folders in a location that have the form of the server's choice: ``-PART/``."""
    return [found[0] for found in _CHOSEN.finditer(f"{location}/")]


def is_first(end: str, made: int) -> bool:
    """Whether a server may have chosen the folder with this end for a table of this creation time (µs since 1970).

    The end has the time at which the folder was chosen: at most a day before the creation, for a staged table. The
    creation time comes from the database, whose clock may be behind those of the servers.
    """
    return -2 * _AHEAD < made // 1000 - _chosen_at(end[1:]) < 2 * _HOLDS


def _chosen_at(part: str) -> int:
    return int(part[:12], 16)  # the milliseconds of a UUIDv7


def _quoted(char: str) -> str:
    return quote(char, safe=_SAFE) if char.isascii() else char


_KEPT: Final[LRUCache[tuple[tuple[tuple[str, str], ...], str], FileIO]] = LRUCache(256)
_KEPT_LOCK: Final = Lock()


def _kept_io(properties: tuple[tuple[str, str], ...], scheme: str, location: str) -> FileIO:
    """Return the file system of a warehouse for a scheme, made once.

    Arrow cannot make an S3 client while a request of another client runs. With a new client for each request, a bucket
    that does not answer would stop the requests of all warehouses.
    """
    with _KEPT_LOCK:
        kept = _KEPT.get((properties, scheme))
        if kept is None:
            kept = _KEPT[properties, scheme] = load_file_io(dict(properties), location)
    return kept


class Places:
    """The file systems of one catalog, by its properties.

    ``trusting``: the properties of a table may name an endpoint, and classes of Python to load. A server does not trust
    these properties, because its clients write them: they could get the server's credentials, or run code. A server
    also refuses a relative location, which would lie in its working folder, and every place outside its warehouse and
    the folders ``allowed``. ``of_users``: users whose rights are checked write into its folders. They may have replaced
    a metadata file, or made a link. So even an operator does not read or write at a place that such a file or link
    names.
    """

    def __init__(
        self, properties: Properties, *, trusting: bool, allowed: Iterable[str] = (), of_users: bool = False
    ) -> None:
        # without the store's URI, which may contain a password
        self._own = {key: value for key, value in properties.items() if key != URI}
        self._trusting = trusting
        self.of_users = of_users
        folders = (self._own.get(WAREHOUSE_LOCATION, ""), *allowed)
        self._folders = Folders(folders, links=not of_users)
        self._reached = (sorted(self._own.items()), folders, of_users)

    @property
    def serves(self) -> bool:
        """Whether a server uses these places, for clients in any language."""
        return not self._trusting

    @property
    def reach(self) -> str:
        """A text that two catalogs share if both may read the same files under the same locations."""
        return hashlib.sha256(
            json.dumps(self._reached, default=str).encode()
        ).hexdigest()  # hashed: it may hold secrets

    def default(self, names: Identifier, above: str | None, user: str | None = None) -> str:
        """Return the location of a new table or view that names none: in its namespace's location, or in the warehouse.

        In a server, a unique part ends the folder's name. A renamed table keeps its folder, and the next table of its
        old name must not share it. With ``user`` the folder is held for this user, who names it later. Raises
        ValueError if there is neither a namespace's location nor a warehouse.
        """
        begin = self.named(names, above)
        if self._trusting:
            return begin
        part = SYSTEM.operation_id().hex
        return f"{begin}-{part}{'' if user is None else _mark(part, begin, user)}"

    def named(self, names: Identifier, above: str | None) -> str:
        """Return the default place of a table or view, without its unique part. Raises ValueError, ForbiddenError."""
        if above:
            # PyIceberg would ignore the rest of the path
            if not self._trusting and any(char in above for char in "?#"):
                raise ValueError(f"the namespace's location has a ? or a #: {above[:200]!r}; name another one")
            if not self._trusting and chosen_in(above):
                raise ForbiddenError(
                    f"the namespace's location lies in the folder of a table, whose users would have the files of all "
                    f"tables below it: {above[:200]!r}; name another one"
                )
            return f"{above.rstrip('/')}/{folder(names[-1])}"
        if warehouse := self._own.get(WAREHOUSE_LOCATION):
            return f"{warehouse.rstrip('/')}/{folder(shown(names[:-1]))}/{folder(names[-1])}"
        raise ValueError("No default path is set, please specify a location when creating a table")

    def check_namespace(self, names: Identifier, location: str | None) -> None:
        """Raise ForbiddenError if a user chooses the location of a namespace: it may be the folder of a table.

        In the folder of a table, a user who may read that table would also get the files of the namespace's tables. The
        default location is allowed.
        """
        own = f"{self._own.get(WAREHOUSE_LOCATION, '').rstrip('/')}/{folder(shown(names))}"
        if location is not None and location.rstrip("/") != own:
            raise ForbiddenError(
                f"only an operator chooses the location of a namespace: leave out {location[:200]!r}; tables go into "
                "folders of the warehouse"
            )

    def io(self, properties: Properties, location: str) -> FileIO:
        """Return the file system of a location.

        In a server it raises ValueError for a relative one, ForbiddenError for one outside the warehouse.
        """
        self.check(location)
        if self._trusting:
            return load_file_io({**self._own, **properties}, location)
        own = tuple(sorted(self._own.items()))
        return Confined(_kept_io(own, urlsplit(location).scheme, location), self._folders)

    def below(self, io: FileIO, *locations: str) -> FileIO:
        """Return a file system that, in a server, reaches only files below a table's locations."""
        return io if self._trusting else Confined(io, Folders(locations))

    def locations(self, location: str, properties: Properties) -> LocationProvider:
        """Return the provider of locations for a table's new files.

        In a server it raises ValueError, ForbiddenError.
        """
        self.check(location, properties)
        if not self._trusting:
            loaded = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
            properties = {key: value for key, value in properties.items() if key != loaded}
        return load_location_provider(location, properties)

    def check(self, location: str, properties: Properties = EMPTY_DICT) -> None:
        """Check a location that a client named, and those in a table's properties. Raises as ``io`` does."""
        for place in (location, *[properties[key] for key in _PLACES if key in properties]):
            self._check(place)

    def check_metadata(self, metadata: TableMetadata) -> None:
        """Check every location in a table's metadata. Raises as ``io`` does."""
        self.check(metadata.location, metadata.properties)
        for file in _named(metadata):
            self._check(file)

    def check_updates(self, updates: Sequence[TableUpdate]) -> None:
        """Check every location in a client's updates of a table. Raises as ``io`` does."""
        for update in updates:
            match update:
                case SetLocationUpdate():
                    self._check(update.location)
                case SetPropertiesUpdate():
                    for key in _PLACES:
                        self._check(update.updates.get(key))
        for file in _files(updates):
            self._check(file)

    def _check(self, location: str | None) -> None:
        if self._trusting or not location:
            return
        if not location.startswith("/") and not urlsplit(location).scheme:
            raise ValueError(f"location: {location[:200]!r} is relative; name a place such as s3://bucket/folder")
        self._folders.check(location)

    def check_chosen(self, location: str, names: Identifier, above: str | None, user: str) -> str:
        """Return the folder around a location, if the server chose that folder for this user in the last day.

        Otherwise raise ForbiddenError.

        The user names such a location to commit a staged table, or to register a file. Any other folder could belong to
        another table, even a renamed or dropped one, and the server would read, write and delete its files.
        """
        begin = self.named(names, above)
        start, own, rest = location.partition(f"{begin}-")
        part = _PART.fullmatch(rest.split("/")[0]) if own and not start else None
        leads_out = {".", ".."}.intersection(location.split("/"))
        if leads_out or part is None or part[2] != _mark(part[1], begin, user) or not _is_new(part[1]):
            raise ForbiddenError(
                f"the server chooses the folder for {shown(names)}, and reserves a staged one for a day; leave the "
                "location out, or let an operator choose it"
            )
        return f"{begin}-{part[0]}"


def _mark(part: str, begin: str, user: str) -> str:
    return hashlib.sha256(json.dumps([part, begin, user]).encode()).hexdigest()[:16]


def _is_new(part: str) -> bool:
    # The mark is not a secret: a client can compute one for a later time. Its folder would be usable for longer than
    # the note of its use is kept.
    return -_AHEAD < SYSTEM.micros() // 1000 - _chosen_at(part) < _HOLDS


def check_moved(location: str, new: str) -> None:
    """Raise ForbiddenError if a user moves a table or view out of its folder, perhaps into another table's."""
    if new.rstrip("/") != location.rstrip("/"):
        try:
            Folders((location,)).check(new)
        except ForbiddenError:
            message = f"{new[:200]!r} does not lie below {location}, where it is now; only an operator moves it"
            raise ForbiddenError(message) from None


def check_same_place(stored: str, location: str) -> None:
    """Raise ForbiddenError if the metadata file of a user's table names another location than the store does.

    A user may write to its table's folder, so it can replace the file. If the new file names the folder of another
    table, the user would get the credentials for that folder, and a purge would delete the files there.
    """
    if location.rstrip("/") != stored.rstrip("/"):
        raise ForbiddenError(
            f"the metadata file names the location {location[:200]!r}, and the store {stored[:200]!r}: the file was "
            "replaced, or the store's location was set by hand; an operator must make them equal"
        )


def check_beside(location: str, file: str) -> None:
    """Raise ForbiddenError unless a metadata file that an operator registers lies in the folder of its own location.

    A user may have written the file, and named the location of another table. The user's table would get that folder.
    """
    here = file.rpartition("/")[0]
    if not any(is_same_place(here, there) for there in (location, f"{location}/metadata")):
        raise ForbiddenError(
            f"the file {file[:200]!r} names the location {location[:200]!r} but is not in it: a user may have "
            "written it; register a file in that folder, or in its folder metadata"
        )


def check_next(location: str, current: str, file: str) -> None:
    """Raise ForbiddenError unless the next metadata file of a table lies beside the current one, or below the table.

    An operator may have chosen a folder elsewhere; then the current file lies there. A user may have replaced the
    content of that file. The check matters because the server deletes old metadata files in the folder of the new one.
    """
    if file.rpartition("/")[0] != current.rpartition("/")[0]:
        check_own(location, {"write.metadata.path": file})


def check_own_updates(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> None:
    """Raise ForbiddenError unless all files in a user's updates of a table lie where the table's files are.

    Otherwise the server would read, and write, files in the folder of another table.
    """
    for update in updates:
        if isinstance(update, SetLocationUpdate):
            check_moved(metadata.location, update.location)
        elif isinstance(update, SetPropertiesUpdate):
            check_own(metadata.location, update.updates)
    _check_own_files(metadata, _files(updates))


def check_own_metadata(metadata: TableMetadata) -> None:
    """Raise ForbiddenError unless all files in a user's metadata of a table lie where the table's files are."""
    check_own(metadata.location, metadata.properties)
    _check_own_files(metadata, _named(metadata))


def _named(metadata: TableMetadata) -> list[str | None]:
    """Return the files that a table's metadata names."""
    figures = [*metadata.statistics, *metadata.partition_statistics]
    lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
    return [*lists, *[one.statistics_path for one in figures]]


def _check_own_files(metadata: TableMetadata, files: Iterable[str | None]) -> None:
    own = Folders((metadata.location, *[metadata.properties[key] for key in _PLACES if key in metadata.properties]))
    for file in files:
        if file:
            try:
                own.check(file)
            except ForbiddenError:
                message = f"{file[:200]!r} is not below the table's own location, {metadata.location}; write it there"
                raise ForbiddenError(message) from None


def _files(updates: Sequence[TableUpdate]) -> Iterator[str | None]:
    """Yield the files that updates of a table name."""
    for update in updates:
        match update:
            case AddSnapshotUpdate():
                yield update.snapshot.manifest_list
            case SetStatisticsUpdate():
                yield update.statistics.statistics_path
            case SetPartitionStatisticsUpdate():
                yield update.partition_statistics.statistics_path


def check_own(location: str, properties: Properties) -> None:
    """Raise ForbiddenError unless the folders in a user's properties of a table lie below the table's own location.

    Otherwise the server would write its files into the folder of another table.
    """
    for key in _PLACES:
        if place := properties.get(key):
            try:
                Folders((location,)).check(place)
            except ForbiddenError:
                message = f"{key} lies below the table's own location, {location}; only an operator chooses another"
                raise ForbiddenError(message) from None
