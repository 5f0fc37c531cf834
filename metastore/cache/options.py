"""The options of a store's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from metastore.arguments import positive_integer, positive_seconds, shown
from metastore.errors import InvalidArgument

__all__ = ["Cache"]

_SHORTEST: Final = 0.1
"""The shortest ttl (seconds). A lease is renewed every third of its ttl, so a shorter lease would rarely hold."""


@dataclass(frozen=True)
class Cache:
    """The options of the cache of ``ms.open(url, cache=…)``.

    ``mode``: "validate" asks the database before each read what has changed, in one query for all simultaneous reads.
    "lease" (PostgreSQL only) answers without the database, while the process is a member that writers wait for.
    ``max_entries``: the largest number of answers that the cache keeps. ``max_bytes``: the limit on their estimated
    memory. ``ttl`` ("lease" only, seconds, at least 0.1): the longest time that a writer waits for a member that does
    not answer. ``when_fenced`` ("lease" only): what a read does while the lease is over. "read_through" asks the
    database; "raise" raises CacheFenced.

    Raises InvalidArgument for any other value.
    """

    mode: Literal["validate", "lease"]
    max_entries: int = 100_000
    ttl: float = 10.0
    when_fenced: Literal["read_through", "raise"] = "read_through"
    max_bytes: int = 268_435_456

    def __post_init__(self) -> None:
        if self.mode not in ("validate", "lease"):
            raise InvalidArgument(f'a cache is "validate" or "lease", not {shown(self.mode)}')
        positive_integer(self.max_entries, "max_entries")
        positive_integer(self.max_bytes, "max_bytes")
        if positive_seconds(self.ttl, "the ttl of a cache") < _SHORTEST and self.mode == "lease":
            raise InvalidArgument(f"the ttl of a lease cache is {_SHORTEST} s at least, not {shown(self.ttl)}")
        if self.when_fenced not in ("read_through", "raise"):
            raise InvalidArgument(f'when_fenced is "read_through" or "raise", not {shown(self.when_fenced)}')
