"""All pages by their names in addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.contention import contention
from metastore.serve.console.feed import feed
from metastore.serve.console.health import health
from metastore.serve.console.operation import operation
from metastore.serve.console.place import place
from metastore.serve.console.rights import rights
from metastore.serve.console.search import search
from metastore.serve.console.times import changes, compare, revert

__all__ = ["PAGES", "PageOf"]

PageOf = Callable[[Asked], Shown]

PAGES: Final[Mapping[str, PageOf]] = {
    "place": place,
    "search": search,
    "rights": rights,
    "compare": compare,
    "changes": changes,
    "revert": revert,
    "operation": operation,
    "feed": feed,
    "contention": contention,
    "health": health,
}
