"""How many connections a store may have, and how long a call waits for one."""

from __future__ import annotations

from typing import NamedTuple

from metastore.errors import PoolExhausted


class Limits(NamedTuple):
    """The number of connections, and how long a call waits for one (seconds); None: until its deadline."""

    size: int = 10
    max_wait: float | None = None

    def exhausted(self) -> PoolExhausted:
        """Return the error for a call that got no connection."""
        return PoolExhausted(
            f"no connection became free in time: all {self.size} are in use; call again later, or open the store with "
            "a larger pool_size"
        )
