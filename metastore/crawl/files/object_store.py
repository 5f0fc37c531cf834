"""List folders of an object store: one listing of all keys below a root, in pages of the store's size.

Keys that file systems cannot have (``a//b``, ``a/../b``) are failures: other readers would read another file. An empty
object that marks a folder is not a file. Sizes and times come from the listing; pyarrow gives no ETags. If the storage
has no times either (most of fsspec), a hash of everything that it says about a file replaces its ETag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from metastore.crawl.files.filesystems import filesystem_of, why
from metastore.crawl.files.formats import format_of, is_hidden
from metastore.crawl.files.listing import File, Folder, Listing
from metastore.crawl.files.patterns import Patterns
from metastore.crawl.files.places import join
from metastore.crawl.files.table_formats import format_beside, why_not

__all__ = ["walk_store"]


def walk_store(root: str, listing: Listing, patterns: Patterns, listed: set[str]) -> bool:
    """List the URI ``root`` into ``listing``.

    Return False if it is empty. ``listed``: the folders that other roots have listed.
    """
    filesystem, inside = filesystem_of(root, listing.options)
    try:
        objects = _below(filesystem, inside)
        if not objects:
            return _alone(root, filesystem.get_file_info(inside), listing, filesystem)
        stamps = _stamps(filesystem, inside, objects)
    except (OSError, pa.ArrowException) as error:
        listing.fail(root, f"cannot be listed: {why(error)}")
        return True
    folders = _Folders(root, listing, patterns, stamps)
    folders.add(objects, inside)
    fresh = [folder for folder in folders.sorted() if folder.path not in listed]
    if len(fresh) < len(folders.files):
        listing.note(root, "is, or contains, a folder that is crawled already below another path")
    listing.folders += fresh
    listed.update(folder.path for folder in fresh)
    return True


def _below(filesystem: Any, inside: str) -> list[Any]:
    """Return all entries below a folder; none if it is not a folder."""
    try:
        objects: list[Any] = filesystem.get_file_info(FileSelector(inside, recursive=True))
    except (OSError, pa.ArrowException):
        # not allow_not_found: it would treat a missing later page as the end of the listing
        if filesystem.get_file_info(inside).type == FileType.Directory:
            raise
        return []
    return objects


def _stamps(filesystem: Any, inside: str, objects: Iterable[Any]) -> dict[str, str]:
    """Return a stamp for each file that has no time: it changes when the file changes."""
    timeless = any(info.type == FileType.File and info.mtime_ns is None for info in objects)
    if not (timeless and isinstance(filesystem, PyFileSystem)):
        return {}
    told = filesystem.handler.fs.find(inside, detail=True).values()
    return {info["name"]: blake2b(repr(sorted(info.items())).encode(), digest_size=16).hexdigest() for info in told}


def _alone(root: str, info: Any, listing: Listing, filesystem: Any) -> bool:
    """Treat ``root`` as a single file. Return whether it is a file, or an empty folder."""
    if info.type != FileType.File:
        return bool(info.type == FileType.Directory)
    folder, _, name = root.rpartition("/")
    if format_of(name) is None:
        listing.skipped += 1
    else:
        file = _file(name, info, _stamps(filesystem, info.path, [info]))
        listing.folders.append(Folder(folder, (), (file,), whole=False))
    return True


def _is_data(name: str) -> bool:
    return format_of(name) is not None and not is_hidden(name)


def _file(name: str, info: Any, stamps: Mapping[str, str]) -> File:
    return File(name, info.size or 0, info.mtime_ns or 0, stamps.get(info.path))


class _Folders:
    """The files of one root, by folder."""

    def __init__(self, root: str, listing: Listing, patterns: Patterns, stamps: Mapping[str, str]) -> None:
        self.root, self.listing, self.patterns, self.stamps = root, listing, patterns, stamps
        self.files: dict[tuple[str, ...], list[File]] = {}
        self.entered: dict[tuple[str, ...], bool] = {}
        self.formats: dict[tuple[str, ...], str] = {}

    def add(self, objects: Iterable[Any], inside: str) -> None:
        """Add the files among ``objects``, whose paths are below ``inside``."""
        objects = {(info.path, info.type): info for info in objects}.values()  # a page may have come twice
        folders = {info.path.rstrip("/") for info in objects if info.type == FileType.Directory}
        start = len(inside.rstrip("/")) + 1 if inside else 0
        files = [
            (tuple(info.path[start:].split("/")), info)
            for info in objects
            if info.type == FileType.File and (info.size or info.path not in folders)
        ]
        self.formats = {
            names[:-2]: form
            for names, _ in files
            if len(names) > 1 and (form := format_beside(names[-2], names[-1:])) is not None
        }
        above = {names[:n] for names, _ in files if _is_data(names[-1]) for n in range(1, len(names))}
        for names, info in files:
            if names in above and _is_data(names[-1]):
                self.listing.fail(join(self.root, *names), "is also a folder with files in it; rename one of the two")
            else:
                self._add(names, info)

    def _add(self, names: tuple[str, ...], info: Any) -> None:
        parts, name = names[:-1], names[-1]
        if not self._enters(parts) or is_hidden(name):
            return
        if format_of(name) is None:
            self.listing.skipped += 1
        elif not self.patterns.takes(names):
            self.listing.left_out.add(join(self.root, *parts))
        elif not all(names) or {".", ".."} & set(parts):
            self.listing.fail(join(self.root, *names), "has an empty name, '.' or '..' in its path; rename it")
        else:
            self.files.setdefault(parts, []).append(_file(name, info, self.stamps))

    def _enters(self, parts: tuple[str, ...]) -> bool:
        """Tell whether the folder would be listed if it was local."""
        known = self.entered.get(parts)
        if known is None:
            known = (not parts or (self._enters(parts[:-1]) and self._may_enter(parts))) and self._is_plain(parts)
            self.entered[parts] = known
        return known

    def _may_enter(self, parts: tuple[str, ...]) -> bool:
        if parts[-1] not in {".", ".."} and is_hidden(parts[-1]):
            return False
        if self.patterns.enters(parts):
            return True
        self.listing.left_out.add(join(self.root, *parts))
        return False

    def _is_plain(self, parts: tuple[str, ...]) -> bool:
        """Whether a folder is not a table in a table format; add a failure if it is one."""
        if parts in self.formats:
            self.listing.fail(join(self.root, *parts), why_not(self.formats[parts]))
        return parts not in self.formats

    def sorted(self) -> list[Folder]:
        """Return the folders in the order in which a walk would come to them, with their files in order."""
        return [
            Folder(self.root, parts, tuple(sorted(files, key=lambda file: file.name)))
            for parts, files in sorted(self.files.items())
        ]
