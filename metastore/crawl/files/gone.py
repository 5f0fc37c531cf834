"""Check whether the files of a location are gone: a listing that lacks them does not prove that.

A page of a listing may be lost, a folder may be empty while a job overwrites it, a lake may not be mounted. So the
crawler checks a location itself before it marks, drops, removes or counts something there as moved.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from metastore.crawl.files.filesystems import NO_OPTIONS, Options, filesystem_of, is_uri
from metastore.crawl.files.formats import format_of, is_hidden
from metastore.crawl.files.places import is_local, path_of
from metastore.errors import InvalidArgument

__all__ = ["is_gone"]


def is_gone(location: str, options: Options = NO_OPTIONS) -> bool:
    """Return whether no file of a known format is at or below ``location``.

    A location that cannot be read is not gone.
    """
    path = path_of(location)
    try:
        if is_uri(path):
            return _is_gone_from_store(*filesystem_of(path, options))
        return is_local(location) and _is_gone_from_disk(path)
    except (OSError, ValueError, NotImplementedError, InvalidArgument):
        return False


def _is_gone_from_disk(path: str) -> bool:
    if not Path(path).is_dir():
        return not Path(path).exists()
    todo = [path]
    while todo:
        with os.scandir(todo.pop()) as entries:
            visible = [entry for entry in entries if not is_hidden(entry.name)]
        folders = [entry for entry in visible if entry.is_dir()]
        if len(folders) < len(visible) and any(format_of(entry.name) for entry in visible if entry not in folders):
            return False
        todo += [entry.path for entry in folders if not entry.is_symlink()]  # a link may lead to a folder above it
    return True


def _is_gone_from_store(filesystem: Any, inside: str) -> bool:
    from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415 (an extra)

    info = filesystem.get_file_info(inside)
    if info.type != FileType.Directory:
        return bool(info.type == FileType.NotFound)
    start = len(inside.rstrip("/")) + 1
    below = filesystem.get_file_info(FileSelector(inside, recursive=True))
    names = [found.path[start:].split("/") for found in below if found.type == FileType.File]
    return not any(format_of(parts[-1]) and not any(map(is_hidden, parts)) for parts in names)
