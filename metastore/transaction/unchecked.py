"""A transaction's reads for the library itself, including entities that its user does not see."""

from __future__ import annotations

from copy import copy
from typing import cast

from metastore.managers.all import Managers
from metastore.port.backend import Reads
from metastore.transaction.one_at_a_time import OneAtATime
from metastore.transaction.transaction import Transaction


def unchecked(tx: Transaction) -> Managers:
    """Return the managers of a transaction without its user's rights. Its commit requires what they read too."""
    inner = copy(tx._inner)  # noqa: SLF001  (no method: a user's transaction must not offer it)
    inner.access, inner.backend = None, cast(Reads, OneAtATime(tx._overlay))  # noqa: SLF001
    return Managers(inner)
