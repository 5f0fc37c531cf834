"""Folders of the local file system: one ``scandir`` per folder and one ``stat`` per file.

Each folder is listed once: real folders first, then the targets of symbolic links. A link to a folder that was listed
already becomes a note, so loops end. A link that leads out of the given paths is a failure and is not followed, unless
the user allows it. A person who can write to the lake must not choose what the crawler reads elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from metastore.crawl.files.formats import format_of, is_hidden
from metastore.crawl.files.listing import NOT_UTF8, File, Folder, Listing, shown
from metastore.crawl.files.patterns import Patterns
from metastore.crawl.files.places import join
from metastore.crawl.files.table_formats import MARKERS, format_beside, why_not

__all__ = ["LocalWalk"]


class LocalWalk:
    """Lists one root after the other into ``listing``, each folder once.

    ``todo`` are folders to list next, ``links`` symbolic links to folders, which come last; ``inside`` is where links
    may lead, None: anywhere.
    """

    def __init__(self, listing: Listing, patterns: Patterns, inside: Iterable[str] | None = None) -> None:
        self.listing, self.patterns = listing, patterns
        self.inside = None if inside is None else [os.path.realpath(root) for root in inside]
        self.seen = set[tuple[int, int]]()
        self.root = ""
        self.todo: list[tuple[str, ...]] = []
        self.links: list[tuple[str, ...]] = []

    def walk(self, root: str) -> None:
        """List a folder and what is below, or a single file."""
        if not Path(root).is_dir():
            self._single_file(Path(root))
            return
        self.root, self.todo = root, [()]
        self._visit_all()
        while self.links:
            self.links.sort(reverse=True)
            self.todo.append(self.links.pop())
            self._visit_all()

    def _single_file(self, path: Path) -> None:
        if format_of(path.name) is None or not path.is_file():
            self.listing.skipped += 1
            return
        stat = path.stat()
        file = File(path.name, stat.st_size, stat.st_mtime_ns)
        self.listing.folders.append(Folder(str(path.parent), (), (file,), whole=False))

    def _visit_all(self) -> None:
        while self.todo:
            parts = self.todo.pop()
            path = join(self.root, *parts)
            try:
                self._visit(path, parts)
            except OSError as error:
                self.listing.fail(path, f"cannot be listed: {error.strerror or error}")

    def _visit(self, path: str, parts: tuple[str, ...]) -> None:
        stat = Path(path).stat()
        if (stat.st_dev, stat.st_ino) in self.seen:
            self.listing.note(path, f"leads to {Path(path).resolve()}, which is crawled already")
            return
        self.seen.add((stat.st_dev, stat.st_ino))
        with os.scandir(path) as entries:
            found = list(entries)
        if (form := _table_format(found)) is not None:
            self.listing.fail(path, why_not(form))
            return
        visible = sorted((e for e in found if not is_hidden(e.name)), key=lambda e: e.name)
        below = [(*parts, entry.name) for entry in visible if self._is_folder(entry, parts)]
        files = tuple(self._files(visible, parts))
        if files:
            self.listing.folders.append(Folder(self.root, parts, files))
        self.todo.extend(reversed(below))

    def _is_folder(self, entry: os.DirEntry[str], parts: tuple[str, ...]) -> bool:
        """Tell whether to list ``entry`` next; a link to a folder is put off."""
        if not _leads_to_folder(entry):
            return False
        if not self.patterns.enters((*parts, entry.name)):
            self.listing.left_out.add(entry.path)
            return False
        if shown(entry.name) != entry.name:
            self.listing.fail(entry.path, NOT_UTF8)
            return False
        if entry.is_symlink():
            if self._may_follow(entry):
                self.links.append((*parts, entry.name))
            return False
        return True

    def _may_follow(self, link: os.DirEntry[str]) -> bool:
        """Tell whether ``link`` stays inside the given paths; a failure says that it does not."""
        to = os.path.realpath(link.path)
        if self.inside is None or any(to == root or to.startswith(join(root, "")) for root in self.inside):
            return True
        self.listing.fail(
            link.path,
            f"is a symbolic link that leads out of the given paths, to {shown(to)}; --follow-links follows it",
        )
        return False

    def _files(self, entries: list[os.DirEntry[str]], parts: tuple[str, ...]) -> Iterator[File]:
        for entry in entries:
            if _leads_to_folder(entry):
                continue
            if format_of(entry.name) is None or not (entry.is_symlink() or entry.is_file()):
                self.listing.skipped += 1
            elif not self.patterns.takes((*parts, entry.name)):
                self.listing.left_out.add(join(self.root, *parts))
            elif (not entry.is_symlink() or self._may_follow(entry)) and (file := self._file(entry)) is not None:
                yield file

    def _file(self, entry: os.DirEntry[str]) -> File | None:
        try:
            entry.name.encode()
            stat = entry.stat()
        except UnicodeEncodeError:
            self.listing.fail(entry.path, NOT_UTF8)
        except FileNotFoundError:
            self.listing.fail(entry.path, "is a symbolic link to nothing" if entry.is_symlink() else "is gone")
        except OSError as error:
            self.listing.fail(entry.path, f"cannot be read: {error.strerror or error}")
        else:
            if S_ISREG(stat.st_mode):
                return File(entry.name, stat.st_size, stat.st_mtime_ns)
            self.listing.skipped += 1
        return None


def _table_format(entries: Iterable[os.DirEntry[str]]) -> str | None:
    """Return the format of the table that a folder with these entries is; None: it is not a table."""
    for entry in entries:
        if entry.name in MARKERS and _leads_to_folder(entry):
            with suppress(OSError), os.scandir(entry.path) as inside:
                if (form := format_beside(entry.name, (one.name for one in inside))) is not None:
                    return form
    return None


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder without permission
        return False
