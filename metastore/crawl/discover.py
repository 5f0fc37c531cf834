"""Which folders and files there are below the paths that the user gave.

Only names, sizes and times are read here, on the driver: one ``scandir`` per folder and one ``stat`` per file.

A folder is listed once: real folders first, then what symbolic links lead to, if it was not listed already (a loop
never is); such a link becomes a note. A folder that cannot be listed, a link to nothing, and a name that is not
Unicode become failures, and the walk goes on. What Spark hides is passed over; files of no known format, and what
is no regular file (pipes, sockets), are counted as skipped. Everything comes in the order of names.

A path that is not there at all is the caller's mistake: InvalidArgument, before anything else happens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metastore.crawl.formats import format_of, is_hidden
from metastore.crawl.places import join
from metastore.crawl.report import Failure, Note
from metastore.errors import InvalidArgument

__all__ = ["File", "Folder", "Listing", "walk"]


@dataclass(frozen=True, slots=True)
class File:
    """A file of a known format."""

    name: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that holds files of a known format; ``parts`` are the names of folders from ``root`` to it.

    ``whole`` is False where the user named a single file of it.
    """

    root: str
    parts: tuple[str, ...]
    files: tuple[File, ...]
    whole: bool = True

    @property
    def path(self) -> str:
        return join(self.root, *self.parts)


@dataclass
class Listing:
    """What a walk found."""

    folders: list[Folder] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    skipped: int = 0


def walk(paths: Iterable[str | os.PathLike[str]]) -> Listing:
    """List everything below ``paths``, folders or files of the local file system."""
    roots = list(dict.fromkeys(os.path.normpath(Path(path).absolute()) for path in paths))
    missing = next((root for root in roots if not Path(root).exists()), None)
    if missing is not None:
        raise InvalidArgument(f"there is no folder or file {missing}; give the path of one that can be read")
    listing, seen = Listing(), set[tuple[int, int]]()
    for root in roots:
        if Path(root).is_dir():
            _Walk(root, listing, seen).run()
        else:
            _single_file(Path(root), listing)
    return listing


def _single_file(path: Path, listing: Listing) -> None:
    if format_of(path.name) is None:
        listing.skipped += 1
        return
    stat = path.stat()
    file = File(path.name, stat.st_size, stat.st_mtime_ns)
    listing.folders.append(Folder(str(path.parent), (), (file,), whole=False))


class _Walk:
    """One root: ``todo`` are folders to list next, ``links`` symbolic links to folders, which come last."""

    def __init__(self, root: str, listing: Listing, seen: set[tuple[int, int]]) -> None:
        self.root, self.listing, self.seen = root, listing, seen
        self.todo: list[tuple[str, ...]] = [()]
        self.links: list[tuple[str, ...]] = []

    def run(self) -> None:
        self._visit_all()
        while self.links:
            self.links.sort(reverse=True)
            self.todo.append(self.links.pop())
            self._visit_all()

    def _visit_all(self) -> None:
        while self.todo:
            parts = self.todo.pop()
            path = join(self.root, *parts)
            try:
                self._visit(path, parts)
            except OSError as error:
                self._fail(path, f"cannot be listed: {error.strerror or error}")

    def _visit(self, path: str, parts: tuple[str, ...]) -> None:
        stat = Path(path).stat()
        if (stat.st_dev, stat.st_ino) in self.seen:
            self.listing.notes.append(Note(_shown(path), f"leads to {Path(path).resolve()}, which is crawled already"))
            return
        self.seen.add((stat.st_dev, stat.st_ino))
        with os.scandir(path) as entries:
            found = sorted((e for e in entries if not is_hidden(e.name)), key=lambda e: e.name)
        below = [(*parts, entry.name) for entry in found if self._is_folder(entry, parts)]
        files = tuple(self._files(found))
        if files:
            self.listing.folders.append(Folder(self.root, parts, files))
        self.todo.extend(reversed(below))

    def _is_folder(self, entry: os.DirEntry[str], parts: tuple[str, ...]) -> bool:
        """Tell whether to list ``entry`` next; a link to a folder is put off."""
        if entry.is_dir(follow_symlinks=False):
            return True
        if entry.is_symlink() and entry.is_dir():
            self.links.append((*parts, entry.name))
        return False

    def _files(self, entries: list[os.DirEntry[str]]) -> Iterator[File]:
        for entry in entries:
            if entry.is_dir():
                continue
            if format_of(entry.name) is None or not (entry.is_file() or entry.is_symlink()):
                self.listing.skipped += 1
                continue
            file = self._file(entry)
            if file is not None:
                yield file

    def _file(self, entry: os.DirEntry[str]) -> File | None:
        try:
            entry.name.encode()
            stat = entry.stat()
        except UnicodeEncodeError:
            self._fail(entry.path, "has a name that is not valid UTF-8; rename it")
        except FileNotFoundError:
            self._fail(entry.path, "is a symbolic link to nothing" if entry.is_symlink() else "is gone")
        except OSError as error:
            self._fail(entry.path, f"cannot be read: {error.strerror or error}")
        else:
            return File(entry.name, stat.st_size, stat.st_mtime_ns)
        return None

    def _fail(self, path: str, reason: str) -> None:
        self.listing.failures.append(Failure(_shown(path), reason))


def _shown(path: str) -> str:
    """Return ``path`` as text that can be printed and stored, whatever bytes are in it."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
