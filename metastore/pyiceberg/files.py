"""Metadata files: write one for a commit, and delete those that no commit names."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import urlsplit

from cachetools import LRUCache
from pydantic import ValidationError as WrongValue
from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import Compressor
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.config import Config

from metastore.errors import MetastoreError, OutcomeUnknown
from metastore.plain.bodies import Crowded, check_values
from metastore.pyiceberg.confined import Confined
from metastore.pyiceberg.manifests import entries_of, manifests_of
from metastore.pyiceberg.naming import check_properties
from metastore.pyiceberg.sharing import parsed, shared

__all__ = [
    "check_text",
    "delete_quietly",
    "deleted_if_refused",
    "files_of",
    "make_folders",
    "never_changes",
    "next_location",
    "outlived",
    "read_current",
    "read_metadata",
    "read_text",
    "write_metadata",
]

E = TypeVar("E")
M = TypeVar("M")

_LARGEST = 64 << 20
"""The largest metadata file of a server (bytes, unpacked). A client chooses the file, and so its size."""
_VALUES = 1_000_000
"""The most values in a metadata file of a server. 60 KB can unpack to millions, which took minutes and gigabytes."""
_PART = 1 << 20


def _size(known: tuple[TableMetadata, int]) -> int:
    return known[1]


_KNOWN: LRUCache[tuple[str, str], tuple[TableMetadata, int]] = LRUCache(64 << 20, getsizeof=_size)
"""The metadata that was used last, by file store and location, with the size of its text. The limit is 64 MiB of
text."""
_REACH: Final = ("s3.", "adls.", "gcs.", "hdfs.", "hf.", "oss.", "client.", "py-io-impl")
"""The properties of a file system that decide which store it reaches, and with which account."""
_KNOWN_LOCK = Lock()
_DELETES = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED
_GC = "gc.enabled"
_LOG = logging.getLogger("metastore.pyiceberg")


def next_location(provider: LocationProvider, current: str | None) -> str:
    """Return the location of a table's next metadata file. Its number is one more than that of ``current``."""
    return provider.new_table_metadata_file_location(0 if current is None else _number(current) + 1)


def _number(location: str) -> int:
    """Return the number in a metadata file's name; -1 if the name has none."""
    match = TABLE_METADATA_FILE_NAME_REGEX.fullmatch(location.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else -1


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Return the table metadata in a file.

    A file that a catalog has written never changes, so the process keeps it in a cache.

    Raises pyiceberg's ValidationError for a file that is not table metadata.
    """
    if not never_changes(location):
        return _parsed(io, location)[0]
    place = (_reach(io), location)
    with _KNOWN_LOCK:
        known = _KNOWN.get(place)
    if known is None:
        known = _parsed(io, location)
        _remember(place, known)
    return known[0]


def _reach(io: FileIO) -> str:
    """Return a key of the file store. With another endpoint or account, the same location names another file."""
    own = sorted((key, str(value)) for key, value in io.properties.items() if key.startswith(_REACH))
    return hashlib.sha256(json.dumps(own).encode()).hexdigest()  # a hash, because the properties may have secrets


def _remember(place: tuple[str, str], known: tuple[TableMetadata, int]) -> None:
    with _KNOWN_LOCK, suppress(ValueError):  # LRUCache raises it for a text larger than the whole cache
        _KNOWN[place] = known


def _parsed(io: FileIO, location: str) -> tuple[TableMetadata, int]:
    """Read a metadata file. The error names the wrong fields, but shows no content of the file, which may be secret."""
    text = read_text(io, location)
    try:
        return parsed(text), len(text)
    except (ValueError, ValidationError) as error:
        raise ValidationError(f"the file {location} is not table metadata: {_wrong_fields(error)}") from None


def read_text(io: FileIO, location: str) -> bytes:
    """Return the unpacked content of a metadata file.

    Raises ValidationError for a damaged compressed file and, in a server, for a file that is too large or has too many
    values.
    """
    parts, size = list[bytes](), 0
    unpacking = Compressor.get_compressor(location).stream_decompressor
    try:
        with io.new_input(location).open() as stream, unpacking(stream) as plain:
            while part := plain.read(_PART):
                parts.append(part)
                size += len(part)
                _check_size(io, location, size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValidationError(f"the file {location} is not table metadata: {type(error).__name__}") from None
    text = b"".join(parts)
    check_text(io, location, text)
    return text


def check_text(io: FileIO, location: str, text: bytes) -> None:
    """Raise ValidationError in a server for a metadata file that is larger than the server would read."""
    _check_size(io, location, len(text))
    # a value needs at least one byte, so the values of a shorter text need not be counted
    if isinstance(io, Confined) and len(text) > _VALUES:
        try:
            check_values(text, _VALUES, _LARGEST)
        except Crowded:
            message = f"the file {location} has more than {_VALUES:,} values; no metadata has so many"
            raise ValidationError(message) from None


def _check_size(io: FileIO, location: str, size: int) -> None:
    if isinstance(io, Confined) and size > _LARGEST:
        raise ValidationError(f"the file {location} has more than {_LARGEST} bytes; no metadata is so large")


def _wrong_fields(error: Exception) -> str:
    reason = error if isinstance(error, WrongValue) else error.__cause__
    if not isinstance(reason, WrongValue):
        return type(error).__name__
    found = reason.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['type']}" for one in found[:5])


def never_changes(location: str) -> bool:
    """Whether a metadata file's name has a UUID. Then a catalog has written the file, and it never changes."""
    return TABLE_METADATA_FILE_NAME_REGEX.fullmatch(location.rsplit("/", 1)[-1]) is not None


def read_current(named: Callable[[], tuple[E, str]], read: Callable[[str], M]) -> tuple[E, M, str]:
    """Return an entity, its metadata, and the location of its metadata file.

    ``named`` reads the entity and this location.

    A commit may replace the file meanwhile, and delete it if the properties say so. Then the new file is read. Raises
    FileNotFoundError if the missing file is still the current one.
    """
    entity, location = named()
    while True:
        try:
            return entity, read(location), location
        except FileNotFoundError:
            gone = location
            entity, location = named()
            if location == gone:
                raise


def write_metadata(io: FileIO, metadata: TableMetadata, location: str) -> None:
    """Write a new metadata file. It never replaces a file. An incomplete file is deleted."""
    check_properties(metadata.properties)
    try:
        text = metadata.model_dump_json(exclude_none=not _keeps_nulls()).encode()
        check_text(io, location, text)
        with io.new_output(location).create() as stream:
            stream.write(Compressor.get_compressor(location).bytes_compressor()(text))
    except FileExistsError:
        raise
    except BaseException:
        delete_quietly(io, [location])
        raise
    if never_changes(location):
        _remember((_reach(io), location), (shared(metadata), len(text)))  # the next commit of this process reads it


@cache
def _keeps_nulls() -> bool:
    """Whether nulls are written, for old readers. Cached, because PyIceberg reads its whole configuration for this."""
    return bool(Config().get_bool("legacy-current-snapshot-id"))


@contextmanager
def deleted_if_refused(io: FileIO, locations: list[str]) -> Iterator[None]:
    """Delete the files of a change that the store refused.

    The files stay if the change may have happened: after an unknown outcome, or an interrupt during the call.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except MetastoreError:
        delete_quietly(io, locations)
        raise


def _is_true(metadata: TableMetadata, name: str, *, otherwise: bool) -> bool:
    """Whether a table's property is true. Any text but ``true`` means false, as in Iceberg's Java library."""
    return metadata.properties.get(name, str(otherwise)).lower() == "true"


def make_folders(location: str) -> None:
    """Make the folders of a staged table on a local disk, because some engines (DuckDB) do not make them.

    Other file systems need no folders.
    """
    place = urlsplit(location)
    if place.scheme in ("", "file"):
        for folder in ("data", "metadata"):
            Path(place.path if place.scheme else location, folder).mkdir(parents=True, exist_ok=True)


def outlived(before: TableMetadata, after: TableMetadata, folder: str) -> list[str]:
    """Return the metadata files that a commit has cut from the log, if the table's properties want them deleted.

    A registered table may name any file in its log, so only files in the table's own ``folder`` count.
    """
    if not _is_true(after, _DELETES, otherwise=TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT):
        return []
    kept = {entry.metadata_file for entry in after.metadata_log}
    cut = [entry.metadata_file for entry in before.metadata_log if entry.metadata_file not in kept]
    return [file for file in cut if never_changes(file) and file.rpartition("/")[0] == folder]


def delete_quietly(io: FileIO, locations: list[str]) -> None:
    """Delete files that nothing refers to. A failure is only logged, because a file that stays does no harm."""
    for location in locations:
        try:
            io.delete(location)
        except Exception:  # noqa: BLE001  (each file system raises its own errors)
            _LOG.warning("the file %s is not named by any commit and could not be deleted", location)


def files_of(io: FileIO, metadata: TableMetadata, location: str) -> list[str]:
    """Return all files of a table, for a purge.

    If a file cannot be read, log it, and leave out the files that it names.

    With the property ``gc.enabled=false`` the data files stay, as in Iceberg's Java library: other tables may use them.
    """
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        with _logged(snapshot.manifest_list):
            manifests |= {manifest.manifest_path: manifest for manifest in manifests_of(io, snapshot)}
    data: set[str] = set()
    for manifest in manifests.values():
        with _logged(manifest.manifest_path):
            data |= {entry.data_file.file_path for entry in entries_of(io, manifest)}
    if not _is_true(metadata, _GC, otherwise=True):
        data.clear()
    figures = {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    lists = {snapshot.manifest_list for snapshot in metadata.snapshots}
    older = {entry.metadata_file for entry in metadata.metadata_log}
    return [*data, *manifests, *lists, *figures, *older, location]


@contextmanager
def _logged(location: str) -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001  (each file system raises its own errors)
        _LOG.warning("the file %s cannot be read; the files that it names are not deleted", location)
