"""What every contender does: the five operations of the mix, by path, on connections of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from metastore.backends.postgres.connection import Connection
from metastore.checker.records import Lost, Outcome

__all__ = ["WAITS", "Contender", "Did", "count_waits", "waited"]

T = TypeVar("T")


class Did(NamedTuple):
    """What an operation was told."""

    outcome: Outcome
    entity_id: int | None = None
    version: int | None = None
    """After it; of a load: the one that was read."""


class Contender(Protocol):
    """One client. It is used by one thread."""

    principal: str
    """Under whose name it writes: set before each operation that is recorded."""
    lost: list[Lost]
    """The attempts that lost since it was emptied."""

    def load(self, path: str) -> Did:
        """Resolve the path and read the document. Not there: ``read`` without an id."""

    def alter(self, path: str, key: str, value: str) -> Did:
        """Set a property of the document, keeping all others. Not there: ``failed``."""

    def create(self, path: str) -> Did:
        """Create a table. The name is taken: ``failed``."""

    def drop(self, path: str) -> Did:
        """Drop it. Not there: ``nothing``."""

    def rename(self, path: str, to: str) -> Did:
        """Give it another name in the same schema. Not there, or the name is taken: ``failed``."""

    def close(self) -> None:
        """Close what is this client's alone."""


WAITS: Final[Counter[int]] = Counter()
"""How often each thread has waited for a server: PostgreSQL, or a lock service."""


def waited() -> None:
    """Note that this thread waits for an answer now."""
    WAITS[threading.get_ident()] += 1


def count_waits() -> None:
    """Count every wait of a connection to PostgreSQL in this process, of the library's and of the peers' alike."""
    original = Connection.wait
    if getattr(original, "counts", False):
        return

    def wait(self: Any, gen: Generator[Any, Any, T], *arguments: Any, **options: Any) -> T:
        WAITS[threading.get_ident()] += 1
        return original(self, gen, *arguments, **options)

    wait.counts = True  # type: ignore[attr-defined]
    Connection.wait = wait  # type: ignore[method-assign]
