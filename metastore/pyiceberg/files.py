"""Metadata files: write one for a commit, and delete what no commit names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from cachetools import LRUCache
from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata

from metastore.errors import MetastoreError, OutcomeUnknown

__all__ = [
    "delete_quietly",
    "delete_table_files",
    "deleted_if_refused",
    "make_folders",
    "never_changes",
    "next_location",
    "read_metadata",
    "write_metadata",
]

_KNOWN: LRUCache[str, TableMetadata] = LRUCache(256)
"""The metadata that was read last."""
_KNOWN_LOCK = Lock()
_LOG = logging.getLogger("metastore.pyiceberg")


def next_location(provider: LocationProvider, current: str | None) -> str:
    """Return where the next metadata file of a table goes. Its number is one more than that of ``current``."""
    return provider.new_table_metadata_file_location(0 if current is None else _number(current) + 1)


def _number(location: str) -> int:
    """Return the number in a metadata file's name; -1 if the name has none."""
    match = TABLE_METADATA_FILE_NAME_REGEX.fullmatch(location.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else -1


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Return what a metadata file says. One that a catalog has written never changes, so it is read once a process."""
    if not never_changes(location):
        return FromInputFile.table_metadata(io.new_input(location))
    with _KNOWN_LOCK:
        known = _KNOWN.get(location)
    if known is None:
        known = FromInputFile.table_metadata(io.new_input(location))
        with _KNOWN_LOCK:
            _KNOWN[location] = known
    return known


def never_changes(location: str) -> bool:
    """Whether a metadata file is one that a catalog has written: its name has a UUID."""
    return TABLE_METADATA_FILE_NAME_REGEX.fullmatch(location.rsplit("/", 1)[-1]) is not None


def write_metadata(io: FileIO, metadata: TableMetadata, location: str) -> None:
    """Write a new metadata file. It never replaces one. A file that is not whole is deleted."""
    try:
        ToOutputFile.table_metadata(metadata, io.new_output(location))
    except FileExistsError:
        raise
    except BaseException:
        delete_quietly(io, [location])
        raise


@contextmanager
def deleted_if_refused(io: FileIO, locations: list[str]) -> Iterator[None]:
    """Delete the files of a change that the store refused.

    A change that may have happened keeps them: an unknown outcome, and an interrupt while the store was asked.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except MetastoreError:
        delete_quietly(io, locations)
        raise


def make_folders(location: str) -> None:
    """Make the folders of a staged table on a local disk: some engines (DuckDB) do not make them. Others need none."""
    place = urlsplit(location)
    if place.scheme in ("", "file"):
        for folder in ("data", "metadata"):
            Path(place.path if place.scheme else location, folder).mkdir(parents=True, exist_ok=True)


def delete_quietly(io: FileIO, locations: list[str]) -> None:
    """Delete files that nothing names. A file that stays does no harm, so a failure is only logged."""
    for location in locations:
        try:
            io.delete(location)
        except Exception:  # noqa: BLE001  (each file system raises its own errors)
            _LOG.warning("the file %s is not named by any commit and could not be deleted", location)


def delete_table_files(io: FileIO, metadata: TableMetadata, location: str) -> None:
    """Delete all files of a table that is gone. A file that cannot be read or deleted stays, and is logged."""
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        with _logged(snapshot.manifest_list):
            manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
    data: set[str] = set()
    for manifest in manifests.values():
        with _logged(manifest.manifest_path):
            entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
            data |= {entry.data_file.file_path for entry in entries}
    lists = {snapshot.manifest_list for snapshot in metadata.snapshots}
    older = {entry.metadata_file for entry in metadata.metadata_log}
    delete_quietly(io, [*data, *manifests, *lists, *older, location])


@contextmanager
def _logged(location: str) -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001  (each file system raises its own errors)
        _LOG.warning("the file %s cannot be read; the files that it names are not deleted", location)
