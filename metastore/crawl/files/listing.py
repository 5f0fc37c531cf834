"""What a walk finds: folders with their files, and what could not be looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from metastore.crawl.files.places import join
from metastore.crawl.report import Failure, Note

__all__ = ["NOT_UTF8", "File", "Folder", "Listing", "shown"]

NOT_UTF8: Final = "has a name that is not valid UTF-8; rename it"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a known format. ``etag`` is there only where a store tells it with its listing."""

    name: str
    size: int
    mtime_ns: int
    etag: str | None = None


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
    """What a walk found.

    ``roots`` are the paths that were given, as they may be shown; ``options`` what opens them, for the executors
    (secret); ``left_out`` the folders that patterns left out, or files of which they left out: what is not found
    there is not gone.
    """

    folders: list[Folder] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    skipped: int = 0
    roots: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict, repr=False)
    left_out: set[str] = field(default_factory=set)

    def fail(self, path: str, reason: str) -> None:
        """Note that something could not be looked at."""
        self.failures.append(Failure(shown(path), reason))

    def note(self, path: str, text: str) -> None:
        """Note something about a path."""
        self.notes.append(Note(shown(path), text))


def shown(path: str) -> str:
    """Return ``path`` as text that can be printed and stored, whatever bytes are in it."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
