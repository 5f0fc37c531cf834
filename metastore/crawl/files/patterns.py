"""Include and exclude patterns: which files of a root are crawled. Pure.

A pattern is matched with the path from the root, name by name: ``*`` ``?`` ``[abc]`` ``[!abc]`` match inside one
name, ``**`` matches any number of folders. A pattern that matches a folder matches all files below it. Upper and lower
case differ; the Unicode form does not matter. Exclude patterns win. Without include patterns, every other file is
taken.

    **/*.csv      CSV files, wherever they are      sales/2024     everything in that folder
    */staging     folders one level down            **/_old        folders of that name, wherever they are
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from metastore.errors import InvalidArgument

__all__ = ["Patterns"]

_ANY_DEPTH: Final = None
_Pattern = tuple[re.Pattern[str] | None, ...]


@dataclass(frozen=True)
class Patterns:
    """The patterns of a crawl, read from text by ``of``."""

    include: tuple[_Pattern, ...] = ()
    exclude: tuple[_Pattern, ...] = ()

    @classmethod
    def of(cls, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> Patterns:
        """Read patterns, or raise InvalidArgument that says what is wrong with one."""
        return cls(_read(include, "an include pattern"), _read(exclude, "an exclude pattern"))

    def takes(self, names: tuple[str, ...]) -> bool:
        """Return whether the file with this path from the root should be crawled."""
        names = _normal(names)
        if any(_covers(pattern, names) for pattern in self.exclude):
            return False
        return not self.include or any(_covers(pattern, names) for pattern in self.include)

    def enters(self, names: tuple[str, ...]) -> bool:
        """Return whether anything below the folder with this path could be taken."""
        names = _normal(names)
        if any(_covers(pattern, names) for pattern in self.exclude):
            return False
        return not self.include or any(_reaches(pattern, names) for pattern in self.include)


def _read(patterns: Iterable[str], what: str) -> tuple[_Pattern, ...]:
    if isinstance(patterns, str):
        raise InvalidArgument(f"{what} comes in a list: [{patterns!r}]")
    return tuple(_compiled(pattern, what) for pattern in patterns)


def _compiled(pattern: str, what: str) -> _Pattern:
    if not isinstance(pattern, str):
        raise InvalidArgument(f"{what} is a string such as '**/*.csv', not {type(pattern).__name__}")
    names = unicodedata.normalize("NFC", pattern).removesuffix("/").split("/")
    if not all(names) or {".", ".."} & set(names):
        raise InvalidArgument(
            f"{what} is a path from the root, such as '**/*.csv', and has no empty name, no '.' and no '..'; "
            f"{pattern!r} has one"
        )
    mixed = next((name for name in names if "**" in name and name != "**"), None)
    if mixed is not None:
        raise InvalidArgument(f"{what} allows ** only as a whole name; {mixed!r} in {pattern!r} is not one")
    if any("]" not in name[name.rindex("[") + 2 :] for name in names if "[" in name):
        raise InvalidArgument(f"{what} has a [ that is never closed: {pattern!r}; write [[] for a plain [")
    return tuple(_ANY_DEPTH if name == "**" else re.compile(fnmatch.translate(name)) for name in names)


def _normal(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name if name.isascii() else unicodedata.normalize("NFC", name) for name in names)


def _places(pattern: _Pattern, names: tuple[str, ...]) -> tuple[frozenset[int], bool]:
    """Return the reachable places in ``pattern``, and whether the first of ``names`` match the whole pattern."""
    places = _skipped(pattern, {0})
    for name in names:
        following = set()
        for at in places - {len(pattern)}:
            part = pattern[at]
            if part is _ANY_DEPTH:
                following.add(at)
            elif part.match(name):
                following.add(at + 1)
        places = _skipped(pattern, following)
        if len(pattern) in places:
            return places, True
    return places, False


def _skipped(pattern: _Pattern, places: set[int]) -> frozenset[int]:
    """Return ``places`` and those after each ``**`` that matches no folder."""
    for at in range(min(places, default=len(pattern)), len(pattern)):
        if at in places and pattern[at] is _ANY_DEPTH:
            places.add(at + 1)
    return frozenset(places)


def _covers(pattern: _Pattern, names: tuple[str, ...]) -> bool:
    return _places(pattern, names)[1]


def _reaches(pattern: _Pattern, names: tuple[str, ...]) -> bool:
    """Return whether ``pattern`` matches the folder, or could match something below it."""
    places, whole = _places(pattern, names)
    return whole or bool(places)
