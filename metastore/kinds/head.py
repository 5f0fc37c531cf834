"""The head of a document: its comment and its properties, which every kind has and which come first.

Most changes touch only the head, and the rest (a table's columns) may be a hundred times as long. So the head alone is
parsed and written, and the rest stays text. This is correct only for a text that :func:`dump` wrote: any other text may
have a key twice, or its keys in another order. So only texts that this process wrote are split.
"""

from __future__ import annotations

from json import JSONDecoder
from typing import Any, Final

__all__ = ["note_written", "split"]

_COMMENT: Final = '{"comment":'
_PROPERTIES: Final = ',"properties":'
_MOST: Final = 20_000
"""The most texts to remember. Beyond that, all are forgotten, and the next change of each document parses it whole."""

_scan = JSONDecoder().scan_once  # type: ignore[attr-defined]  # the value at an index of a text, and where it ends
_written: dict[int, None] = {}
"""The hashes of these texts. Each process has a random hash seed, so nobody can craft a matching text."""


def note_written(text: str) -> None:
    """Note that this process wrote ``text``."""
    if len(_written) >= _MOST:
        _written.clear()
    _written[hash(text)] = None


def split(text: str) -> tuple[dict[str, Any], str] | None:
    """Return the head of a document and the text of the rest; None: the whole text must be parsed."""
    if hash(text) not in _written or not text.startswith(_COMMENT):
        return None
    comment, end = _scan(text, len(_COMMENT))
    if not text.startswith(_PROPERTIES, end):
        return None
    properties, end = _scan(text, end + len(_PROPERTIES))
    return {"comment": comment, "properties": properties}, text[end:]
