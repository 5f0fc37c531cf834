"""Lend connections of a pool for as long as a test wants, in an ExitStack too, which a pool's own blocks refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from metastore.backends.sql.pool import Loan

__all__ = ["lent"]


class _Pool(Protocol):
    def connection(self) -> Loan[Any]: ...


@contextmanager
def lent(pool: _Pool) -> Iterator[Any]:
    """Lend a connection while the block runs."""
    with pool.connection() as connection:
        yield connection
