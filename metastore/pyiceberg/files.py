"""Metadata files: write one for a commit, and delete what no commit names."""

from __future__ import annotations

import logging

from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata

__all__ = ["delete_quietly", "next_location", "read_metadata", "write_metadata"]

_LOG = logging.getLogger("metastore.pyiceberg")


def next_location(metadata: TableMetadata, current: str | None) -> str:
    """Return where the next metadata file of a table goes. Its number is one more than that of ``current``."""
    provider = load_location_provider(metadata.location, metadata.properties)
    return provider.new_table_metadata_file_location(0 if current is None else _number(current) + 1)


def _number(location: str) -> int:
    """Return the number in a metadata file's name; -1 if the name has none."""
    match = TABLE_METADATA_FILE_NAME_REGEX.fullmatch(location.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else -1


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Return what a metadata file says."""
    return FromInputFile.table_metadata(io.new_input(location))


def write_metadata(io: FileIO, metadata: TableMetadata, location: str) -> None:
    """Write a new metadata file. It never replaces one."""
    ToOutputFile.table_metadata(metadata, io.new_output(location))


def delete_quietly(io: FileIO, locations: list[str]) -> None:
    """Delete files that nothing names. A file that stays does no harm, so a failure is only logged."""
    for location in locations:
        try:
            io.delete(location)
        except Exception:  # noqa: BLE001  (each file system raises its own errors)
            _LOG.warning("the file %s is not named by any commit and could not be deleted", location)
