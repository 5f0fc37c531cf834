"""Search, step by step: names by their beginning or a pattern, or texts in the documents of entities."""

from __future__ import annotations

from typing import Any, Final

from metastore.kinds.registry import KINDS
from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.contents import row_of
from metastore.serve.console.words import command

__all__ = ["search"]

_SIZE: Final = 50
_SECONDS: Final = 0.5
"""How long one step of a search takes (seconds)."""


def search(asked: Asked) -> Shown:
    """Return the results of a step of half a second, the progress, and the address of the next step."""
    sought = (asked.text("q") or "").strip()
    kind, under, token = asked.text("of"), asked.text("under"), asked.text("token")
    in_texts = asked.text("in") == "texts"
    values: dict[str, Any] = {
        "q": sought,
        "of": kind or "",
        "under": under or "",
        "in_texts": in_texts,
        "kinds": sorted(KINDS),
        "found": None,
    }
    shown = None
    if sought:
        pattern = sought if any(mark in sought for mark in "*?") else f"{sought}*"
        name, text = (None, sought) if in_texts else (pattern, None)
        found = asked.store.find_page(under, kind=kind, name=name, text=text, size=_SIZE, token=token, seconds=_SECONDS)
        values |= {
            "found": found,
            "rows": [row_of(asked, one) for one in found.items],
            "following": found.next_token and asked.here(token=found.next_token),
            "is_first": token is None,
        }
        words = ("--text", sought) if in_texts else ("--name", pattern)
        shown = command("find", *([under] if under else []), *words, *(("--kind", kind) if kind else ()))
    return Shown("search.html", f"Search: {sought}" if sought else "Search", values, shown)
