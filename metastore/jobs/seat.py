"""The seat of a server that runs jobs: a lease that shows the other servers that this one is alive.

Seats are leases called ``job-worker-0``, ``job-worker-1``, … A server takes the first free one, so that there are never
more names than servers that ran at once. Name and token together identify a server among all that ever ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from metastore.errors import InvalidArgument, LeaseHeld
from metastore.leases.lease import Lease

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["living", "take_seat"]

_NAME: Final = "job-worker-{}"
_SEATS: Final = 1000
"""How many servers may run jobs on one database."""


def take_seat(store: Store, ttl: float) -> Lease:
    """Take the first free seat, and renew it while this thread lives. Raises the errors of ``store.leases.acquire``."""
    taken = living(store)
    for number in range(_SEATS):
        name = _NAME.format(number)
        if name in taken:
            continue
        try:
            return store.leases.acquire(name, ttl=ttl, renew_every=ttl / 6)
        except LeaseHeld:
            continue
    raise InvalidArgument(f"{_SEATS} servers run jobs on this database already; start this one without workers")


def living(store: Store) -> Mapping[str, int]:
    """Return the tokens of the servers whose leases are not over, by seat."""
    prefix = _NAME.format("")
    return {
        one.name: one.token
        for one in store.leases.list()
        if one.name.startswith(prefix) and not one.expired and one.token is not None
    }
