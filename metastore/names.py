"""Names and paths: check them, compare them, write and parse them.

A name has 1 to 255 code points after NFC, no control character and no lone surrogate. Everything else is allowed,
including a blank at either end, because external sources have such names. Names are compared by code point: unchanged,
or, in a catalog that folds case, as ``NFC(casefold(NFC(name)))``.

A path has the names from the root on: ``lake.catalog.schema.table``. In its string form, a name with a dot or a
back-quote is back-quoted, and its back-quotes are doubled. A name that begins or ends with a blank is also written in
back-quotes, so that a reader sees the blank. Without these quotes it is parsed in the same way: a name is the text
between two dots.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from metastore.errors import InvalidArgument

__all__ = [
    "MAX_NAME",
    "MAX_PATH",
    "Path",
    "clean_name",
    "clean_text",
    "exact_text",
    "fold",
    "format_path",
    "parse_path",
]

MAX_NAME = 255
"""The largest number of code points in a name."""
MAX_PATH = 1000
"""The largest number of names in a path."""

_REMEMBERED = 512
"""The longest path (characters) whose parsed form is remembered."""

Path = str | tuple[str, ...]
"""A path: a string such as ``lake.catalog.schema``, or a tuple of names."""


def clean_name(name: object) -> str:
    """Return ``name`` normalised to NFC, or raise InvalidArgument, which says what is wrong."""
    if type(name) is not str:
        name = exact_text(name, "a name")
    if name.isascii():
        if not name.isprintable():
            raise InvalidArgument(f"the name {name!r} has a control character; remove it")
    else:
        name = _clean_unicode(name)
    if not name:
        raise InvalidArgument("a name must not be empty")
    if len(name) > MAX_NAME:
        raise InvalidArgument(f"the name {name[:20]!r}… has {len(name)} code points; at most {MAX_NAME} are allowed")
    return name


def _clean_unicode(name: str) -> str:
    for char in name:
        category = unicodedata.category(char)
        if category == "Cc":
            raise InvalidArgument(f"the name {name!r} has a control character; remove it")
        if category == "Cs":
            raise InvalidArgument(f"the name {name!r} has a lone surrogate; it is not valid Unicode text")
    return unicodedata.normalize("NFC", name)


def exact_text(text: object, what: str) -> str:
    """Return ``text`` as a plain string, because the methods of a subclass may disagree with its characters."""
    if not issubclass(type(text), str):
        raise InvalidArgument(f"{what} must be a string, not {type(text).__name__}")
    return str.__str__(text)


def clean_text(text: object, what: str) -> str:
    """Return ``text`` as a plain string, or raise InvalidArgument if it has lone surrogates, which cannot be stored."""
    if type(text) is not str:
        text = exact_text(text, what)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgument(f"{what} has a lone surrogate; it is not valid Unicode text") from None
    return text


def fold(name: str) -> str:
    """Return the form in which a catalog that folds case compares ``name`` (already in NFC)."""
    return unicodedata.normalize("NFC", name.casefold())


def format_path(names: Iterable[str]) -> str:
    """Write ``names`` as a path string; :func:`parse_path` reads it back."""
    return ".".join(["`" + n.replace("`", "``") + "`" if "." in n or "`" in n or n != n.strip() else n for n in names])


def parse_path(path: object) -> tuple[str, ...]:
    """Return the clean names of ``path``, a string or a tuple of names. Raises InvalidArgument."""
    if type(path) is str and len(path) <= _REMEMBERED:
        return _parsed(path)
    if isinstance(path, str):
        path = exact_text(path, "a path")
        names = path.split(".") if "`" not in path else _split_quoted(path)
    elif isinstance(path, tuple):
        names = list(path)
    else:
        raise InvalidArgument(f"a path is a string or a tuple of names, not {type(path).__name__}")
    if not names:
        raise InvalidArgument("a path must have at least one name")
    if len(names) > MAX_PATH:
        raise InvalidArgument(f"the path has {len(names)} names; at most {MAX_PATH} are allowed")
    return tuple([clean_name(n) for n in names])


@lru_cache(16384)
def _parsed(path: str) -> tuple[str, ...]:
    """Return the clean names of a short path; remembered, because a service uses the same paths again and again."""
    return parse_path(tuple(path.split(".") if "`" not in path else _split_quoted(path)))


def _split_quoted(path: str) -> list[str]:
    names: list[str] = []
    at, end = 0, len(path)
    while True:
        if at < end and path[at] == "`":
            name, at = _quoted_name(path, at)
        else:
            stop = path.find(".", at)
            stop = end if stop < 0 else stop
            name, at = path[at:stop], stop
            if "`" in name:
                raise InvalidArgument(f"the path {path!r} has a back-quote inside a name that is not back-quoted")
        names.append(name)
        if at == end:
            return names
        if path[at] != ".":
            raise InvalidArgument(f"the path {path!r} has text after a closing back-quote; a dot must follow")
        at += 1


def _quoted_name(path: str, at: int) -> tuple[str, int]:
    """Read the back-quoted name that begins at ``at``; return it, and the index after its closing quote."""
    name = ""
    while True:
        close = path.find("`", at + 1)
        if close < 0:
            raise InvalidArgument(f"the path {path!r} has a back-quote that is never closed")
        name += path[at + 1 : close]
        if path[close + 1 : close + 2] != "`":
            return name, close + 1
        name += "`"
        at = close + 1
