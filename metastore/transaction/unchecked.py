"""Give the library reads in a transaction that also show the entities that are hidden from the transaction's user."""

from __future__ import annotations

from copy import copy
from typing import cast

from metastore.managers.all import Managers
from metastore.port.backend import Reads
from metastore.transaction.one_at_a_time import OneAtATime
from metastore.transaction.transaction import Transaction


def unchecked(tx: Transaction) -> Managers:
    """Return a transaction's managers without its user's rights. The commit validates their reads too."""
    inner = copy(tx._inner)  # noqa: SLF001  (no method: a user's transaction must not offer it)
    inner.access, inner.backend = None, cast(Reads, OneAtATime(tx._overlay))  # noqa: SLF001
    return Managers(inner)
