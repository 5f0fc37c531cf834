"""The listing of a walk: folders with their files, and the paths that could not be listed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from metastore.crawl.files.places import join
from metastore.crawl.report import Failure, Note

__all__ = ["NOT_UTF8", "File", "Folder", "Listing", "shown"]

NOT_UTF8: Final = "has a name that is not valid UTF-8; rename it"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a known format. ``etag`` is None unless the store lists it."""

    name: str
    size: int
    mtime_ns: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that holds files of a known format; ``parts`` are the names of folders from ``root`` to it.

    ``whole`` is False if the user named a single file of the folder.
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
    """The result of a walk.

    ``roots`` are the given paths without secrets. ``options`` open them on the executors, and are secret. ``left_out``
    are the folders that patterns left out as a whole or in part: a data set that is missing there is not gone.
    ``doubles`` are links to files that are listed elsewhere.
    """

    folders: list[Folder] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    skipped: int = 0
    roots: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict, repr=False)
    left_out: set[str] = field(default_factory=set)
    doubles: set[str] = field(default_factory=set)

    def fail(self, path: str, reason: str) -> None:
        """Add a failure: a path that cannot be crawled."""
        self.failures.append(Failure(shown(path), reason))

    def note(self, path: str, text: str) -> None:
        """Add a note about a path."""
        self.notes.append(Note(shown(path), text))


def shown(path: str) -> str:
    """Return ``path`` as text that can be printed and stored; invalid bytes are escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
