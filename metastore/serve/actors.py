"""Give each client of a server its view of the store: with its name as principal, or as a user with checked rights."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from metastore.errors import InvalidArgument
from metastore.serve.principals import Principals

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Actors"]

_MOST: Final = 1000


class Actors:
    """The views of one store, by the name of the client."""

    def __init__(self, store: Store, principals: Principals, *, authorization: bool = False) -> None:
        """``authorization``: check each request. Raises InvalidArgument if ``principals`` authenticate nobody."""
        if authorization and not principals.authenticates:
            raise InvalidArgument(
                "--authorization needs to know who a client is, and here any client may name any user; give a "
                "--token-file, or a --proxy-header that a proxy before the server sets, or leave --authorization out"
            )
        self.principals = principals
        self._store = store
        self.authorization = authorization
        self._views: LRUCache[tuple[str, bool], Store] = LRUCache(_MOST)
        self._lock = Lock()

    def sees(self, principal: str, catalog: tuple[str, str]) -> bool:
        """Whether a client sees a catalog."""
        return self.of(principal).catalogs.exists(catalog)

    def of(self, principal: str, *, swaps: bool = False) -> Store:
        """Return the store for a client. The store keeps its managers, so that a request need not make them.

        ``swaps``: for Iceberg's protocol, which lets tables have other metadata files. Raises InvalidArgument for a
        name that no user can have.
        """
        with self._lock:
            if (known := self._views.get((principal, swaps))) is None:
                store = self._store
                # a tuple: a name is not a path, whatever characters it has
                made = store.as_user((principal,)) if self.authorization else store.bind(principal=principal)
                if (access := made._session.access) is not None:  # noqa: SLF001  (the same package)
                    access.swaps = swaps
                known = self._views[principal, swaps] = made
        return known
