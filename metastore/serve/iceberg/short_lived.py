"""Short-lived keys for the files of one table: the part that S3, Azure and Google Cloud Storage share.

Each cloud decides which files a key may open (``_scope``, pure), and how its token service makes the key (``_make``,
one attempt). It may hide more properties from clients than the secrets (``_shown``). Each request checks the user's
rights before it asks for a key, so a user who has lost them gets none, not even a kept one.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Final, Generic, TypeVar

from metastore.errors import InvalidArgument
from metastore.serve.iceberg.credentials import Static, Vended
from metastore.serve.iceberg.kept_keys import KeptKeys, Made
from metastore.serve.iceberg.rights import RIGHTS

__all__ = ["ShortLived", "checked_life"]

_SHORTEST, _LONGEST = 900, 43_200
"""How long a key may last (seconds): as long as a session of AssumeRole."""
_LOG: Final = logging.getLogger("metastore.serve")

Scope = TypeVar("Scope")
"""The files that a key may open, in the form of a cloud."""


class ShortLived(ABC, Generic[Scope]):
    """Makes keys that open the files of one table for some time. A key has the rights of its user on the table."""

    def __init__(self, name: str, properties: Mapping[str, str] | None) -> None:
        """Keep the properties of the warehouse's file system; clients get those that are not secrets.

        ``name``: that of the threads that make keys.

        Raises InvalidArgument.
        """
        self._own = Static("", properties or {})
        self._kept = KeptKeys(name)

    def properties(self) -> dict[str, str]:
        """Return the properties with which the server itself reaches files. Raises InvalidArgument."""
        return self._own.properties()

    def vend(self, location: str, principal: str, rights: Collection[str] = RIGHTS) -> Vended | None:
        """Return a key for the files below a table's location; None: no key can open these files alone.

        Raises CannotVend.
        """
        scope = self._scope(location, rights)
        if scope is None:
            _LOG.warning("no key opens the files of %.200r alone: %s gets none", location, principal)
            return None
        key = (location, principal, tuple(sorted(rights)))
        config = self._kept.get(key, lambda: self._make(scope, principal))
        return Vended(location.rstrip("/") + "/", {**self._shown(), **config})

    def _shown(self) -> Mapping[str, str]:
        """Return the properties that each client gets beside its key."""
        return self._own.shown()

    @abstractmethod
    def _scope(self, location: str, rights: Collection[str]) -> Scope | None:
        """Return the files that a key for these rights may open; None if no key can open this location alone. Pure."""

    @abstractmethod
    def _make(self, scope: Scope, principal: str) -> Made:
        """Ask the token service for a key, once. Raises CannotVend, whose message has no secret."""


def checked_life(duration: float) -> int:
    """Return how long keys live, in whole seconds. Raises InvalidArgument."""
    if not _SHORTEST <= duration <= _LONGEST:
        raise InvalidArgument(f"a key lives for 15 minutes to 12 hours, not for {duration:g} s")
    return int(duration)
