"""Every policy by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.bench.contention import postgres, sqlite
from tests.bench.contention.cells import WORKS, Cell, Database
from tests.bench.contention.helping import Helping
from tests.bench.contention.policy import Policy, full_jitter

__all__ = ["opened"]

_POLICIES: Mapping[Database, Mapping[str, Callable[..., Policy]]] = {
    "postgres": {
        "helping": Helping,
        "cas": postgres.Cas,
        "cas_jitter": partial(postgres.Cas, pause=full_jitter),
        "for_update": postgres.ForUpdate,
        "advisory": postgres.Advisory,
        "serializable": postgres.Serializable,
        "blind_update": postgres.BlindUpdate,
    },
    "sqlite": {
        "helping": Helping,
        "cas": sqlite.Cas,
        "cas_jitter": partial(sqlite.Cas, pause=full_jitter),
        "for_update": sqlite.ForUpdate,
        "serializable": partial(sqlite.Serializable, pause=full_jitter),
        "blind_update": sqlite.BlindUpdate,
    },
}


def opened(cell: Cell, url: str) -> Policy:
    """Return a writer for the cell, with a connection of its own."""
    return _POLICIES[cell.database][cell.policy](url, WORKS[cell.work], cell.in_hand)
