"""Make a user's memberships follow the groups that its token names.

A group of a metalake follows an issuer if its external id is the issuer, ``#``, and the group's own name: an operator
writes that once. All other groups stay as they are, so a claim has only the effects that an operator allowed. The
memberships are ordinary relations, which the commits of the request check.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from metastore.clock import SYSTEM
from metastore.errors import EntityNotFound, InvalidArgument, NotInUse
from metastore.kinds.principal import Group, User
from metastore.names import clean_name
from metastore.serve.principals import Claimed

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Memberships"]

_MOST: Final = 10_000
"""How many users are remembered."""
_STAYS: Final = 1.0
"""How long a token with the same groups is not compared again (seconds)."""
_REASON: Final = "the groups of a token"


class Memberships:
    """Writes the memberships that tokens name, as the issuer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settled: LRUCache[int, tuple[Claimed, float]] = LRUCache(_MOST)
        self._stuck = set[int]()
        """The users that could not leave a group: their metalake is disabled."""
        self._lock = Lock()

    def follow(self, claimed: Claimed, users: Iterable[User]) -> None:
        """Make the token's owner a member of exactly those groups of the issuer that the token names.

        ``users``: all users of the token's owner.

        A disabled metalake admits no writes: a user that must leave a group there has no rights (see ``settled``).
        Raises the other errors of its reads and writes: then the request must not go on.
        """
        for user in users:
            now = SYSTEM.monotonic()
            with self._lock:
                known = self._settled.get(user.id)
            if known is None or known[0] != claimed or now - known[1] >= _STAYS:
                try:
                    self._settle(claimed, user)
                except NotInUse:
                    with self._lock:
                        self._stuck.add(user.id)
                        self._settled.pop(user.id, None)
                else:
                    with self._lock:
                        self._stuck.discard(user.id)
                        self._settled[user.id] = (claimed, now)

    def settled(self, users: Iterable[User]) -> list[User]:
        """Return the users without those that are still in a group which they must leave."""
        with self._lock:
            return [user for user in users if user.id not in self._stuck]

    def _settle(self, claimed: Claimed, user: User) -> None:
        groups = self._store.bind(principal=claimed.issuer, reason=_REASON).groups
        there = {group.name: group for group in self._store.users.groups(user) if _follows(group, claimed)}
        names = _usable(claimed.names)
        for name, group in there.items():
            if name not in names:
                with suppress(EntityNotFound):  # the group or the user is gone, and the membership with it
                    groups.remove(group, user)
        wanted = [(user.names[0], name) for name in sorted(names - there.keys())]
        for found in self._store.groups.load_many(wanted):
            if found is not None and _follows(found, claimed):
                with suppress(EntityNotFound, NotInUse):
                    groups.add(found, user)


def _follows(group: Group, claimed: Claimed) -> bool:
    return group.external_id == f"{claimed.issuer}#{group.name}"


def _usable(names: Iterable[str]) -> set[str]:
    """Return the names that a group can have, as the store writes them: an issuer may compose letters differently."""
    usable = set()
    for name in names:
        with suppress(InvalidArgument):
            usable.add(clean_name(name))
    return usable
