"""List folders of the local file system: one ``scandir`` per folder and one ``stat`` per file.

Each folder and file is listed once: real ones of all roots first, then the targets of symbolic links. A link to a
folder or file that is listed already becomes a note: so loops end, and no data set becomes two tables. A link that
leads out of the given paths is a failure and is not followed, unless the user allows it. Otherwise a person who can
write to the lake could choose files elsewhere for the crawler to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import Final

from metastore.crawl.files.formats import format_of, is_hidden
from metastore.crawl.files.listing import NOT_UTF8, File, Folder, Listing, shown
from metastore.crawl.files.patterns import Patterns
from metastore.crawl.files.places import base_name, join
from metastore.crawl.files.table_formats import MARKERS, format_beside, why_not

__all__ = ["LocalWalk"]

_TELL: Final = 100
"""After how many folders the walk reports its progress."""


class LocalWalk:
    """Lists one root after the other into ``listing``, each folder and file once; ``finish`` follows the links.

    ``todo`` are folders to list next, ``links`` symbolic links to folders, ``linked`` those to files; ``inside`` are
    the folders into which links may lead, None: any. ``tell`` is called with the number of folders that were listed.
    """

    def __init__(
        self, listing: Listing, patterns: Patterns, inside: Iterable[str] | None, tell: Callable[[int], None]
    ) -> None:
        self.listing, self.patterns, self.tell = listing, patterns, tell
        self.inside = None if inside is None else [os.path.realpath(root) for root in inside]
        self.seen: dict[tuple[int, int], str] = {}
        """The path of each folder that was listed, by device and inode."""
        self.root = ""
        self.todo: list[tuple[str, ...]] = []
        self.links: list[tuple[str, tuple[str, ...]]] = []
        self.linked: list[str] = []

    def walk(self, root: str) -> None:
        """List a folder and the real folders below, or a single file."""
        if not Path(root).is_dir():
            self._single_file(Path(root))
            return
        self.root, self.todo = root, [()]
        self._visit_all()

    def finish(self) -> None:
        """List the folders to which links lead, and leave out the links to files that are listed already."""
        while self.links:
            self.links.sort(reverse=True)
            self.root, parts = self.links.pop()
            self.todo.append(parts)
            self._visit_all()
        doubles = set(self._doubles())
        if doubles:
            self.listing.doubles |= doubles
            here = self.listing.folders
            for number, folder in enumerate(here):
                kept = tuple(file for file in folder.files if join(folder.path, file.name) not in doubles)
                here[number] = folder if len(kept) == len(folder.files) else replace(folder, files=kept)
            here[:] = [folder for folder in here if folder.files]

    def _doubles(self) -> Iterator[str]:
        """Yield the links to files that are listed already, at their own path or by another link; note each one."""
        real = {folder.path: {file.name for file in folder.files} for folder in self.listing.folders if self.linked}
        targets = set[str]()
        for link in sorted(self.linked):
            to = os.path.realpath(link)
            home = self.seen.get(_identity(Path(to).parent.stat()), "")
            if to in targets or base_name(to) in real.get(home, ()):
                self.listing.note(link, f"leads to {shown(to)}, which is crawled already")
                yield link
            targets.add(to)

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
                name = "" if error.filename in (None, path) else base_name(error.filename)
                inside = name and f", because of {shown(name)} in it"
                self.listing.fail(path, f"cannot be listed{inside}: {error.strerror or error}")

    def _visit(self, path: str, parts: tuple[str, ...]) -> None:
        if (identity := _identity(Path(path).stat())) in self.seen:
            self.listing.note(path, f"leads to {Path(path).resolve()}, which is crawled already")
            return
        self.seen[identity] = path
        if len(self.seen) % _TELL == 0:
            self.tell(len(self.seen))
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
        """Tell whether to list ``entry`` next; a link to a folder is left for later."""
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
                self.links.append((self.root, (*parts, entry.name)))
            return False
        return True

    def _may_follow(self, link: os.DirEntry[str]) -> bool:
        """Tell whether ``link`` stays inside the given paths; add a failure if it does not."""
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
                if entry.is_symlink():
                    self.linked.append(join(self.root, *parts, entry.name))
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


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _table_format(entries: Iterable[os.DirEntry[str]]) -> str | None:
    """Return the table format of a folder with these entries; None if it is not a table."""
    for entry in entries:
        if entry.name in MARKERS and entry.is_dir():  # an OSError makes the folder a failure: its format is unknown
            with os.scandir(entry.path) as inside:
                if (form := format_beside(entry.name, (one.name for one in inside))) is not None:
                    return form
    return None


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder without permission
        return False
