"""Search: names by their beginning everywhere, by index; patterns with ``*`` and ``?``, below a place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from metastore.clock import SYSTEM
from metastore.errors import DeadlineExceeded
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS
from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.contents import Row, row_of
from metastore.serve.console.words import command

__all__ = ["search"]

_SIZE: Final = 50
_SECONDS: Final = 0.5


def search(asked: Asked) -> Shown:
    """Return the entities whose names begin with a text, or fit a pattern with ``*`` and ``?``."""
    sought = (asked.text("q") or "").strip()
    kind = asked.text("of")
    under = asked.text("under")
    values: dict[str, Any] = {
        "q": sought,
        "of": kind or "",
        "under": under or "",
        "kinds": sorted(KINDS),
        "rows": [],
        "more": False,
        "took": 0.0,
    }
    shown = None
    if sought:
        pattern = sought if any(mark in sought for mark in "*?") else f"{sought}*"
        started = SYSTEM.monotonic()
        found, more = _found(asked.store.find(under, kind=kind, name=pattern, timeout=_SECONDS))
        rows: list[Row] = [row_of(asked, one) for one in found]
        values |= {"rows": rows, "more": more, "took": SYSTEM.monotonic() - started}
        shown = command("find", *([under] if under else []), "--name", pattern, *(("--kind", kind) if kind else ()))
    return Shown("search.html", f"Search: {sought}" if sought else "Search", values, shown)


def _found(entities: Iterator[Entity]) -> tuple[list[Entity], bool]:
    """Return the first entities of a search, and whether there may be more: it ends also where it finds nothing."""
    found = list[Entity]()
    try:
        for one in entities:
            if len(found) == _SIZE:
                return found, True
            found.append(one)
    except DeadlineExceeded:
        return found, True
    return found, False
