"""Give each client of a server its own view of the store: with the client's name, or with its user's rights."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from metastore.errors import InvalidArgument
from metastore.governance.evidence import Who, who
from metastore.serve.memberships import Memberships
from metastore.serve.principals import Principal, Principals
from metastore.store.who import users_outside

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Actors"]

_MOST: Final = 1000
"""How many views are kept at once."""


class Actors:
    """The views of one store, by the name of the client."""

    def __init__(self, store: Store, principals: Principals, *, authorization: bool = False) -> None:
        """``authorization``: check each request. Raises InvalidArgument if ``principals`` authenticate nobody."""
        if authorization and not principals.authenticates:
            raise InvalidArgument(
                "--authorization needs to know who a client is, and here any client may name any user; give a "
                "--token-file, an --oidc-issuer, or a --proxy-header that a proxy before the server sets, or leave "
                "--authorization out"
            )
        self.principals = principals
        self._store = store
        self._memberships = Memberships(store)
        self.authorization = authorization
        self._views: LRUCache[tuple[str, Who | None, bool], Store] = LRUCache(_MOST)
        self._lock = Lock()

    def sees(self, principal: Principal, catalog: tuple[str, str]) -> bool:
        """Whether a client sees a catalog."""
        return self.of(principal).catalogs.exists(catalog)

    def of(self, principal: Principal, *, swaps: bool = False) -> Store:
        """Return a store that acts for a client. Views are kept, so that a request need not make the managers again.

        With authorization, this call finds the users of an issuer's token in the database, and makes their memberships
        follow the token's groups. ``swaps``: for Iceberg's protocol, which may change the metadata file of a table.
        Raises InvalidArgument for a name that no user can have, and the errors of reading and writing memberships.
        """
        store, user = self._store, self._user(principal)
        with self._lock:
            if (known := self._views.get((principal.name, user, swaps))) is None:
                made = store.bind(principal=principal.name) if user is None else store._acting_as(user)  # noqa: SLF001
                if (access := made._session.access) is not None:  # noqa: SLF001  (the same package)
                    access.swaps = swaps
                known = self._views[principal.name, user, swaps] = made
        return known

    def _user(self, principal: Principal) -> Who | None:
        """Return the user whose rights limit a client; None: the client may do everything.

        If the client has an issuer's token, its external id decides which users it is, and whether it is an admin. Its
        name decides neither.
        """
        if not self.authorization or principal.external_id in self._store._admins:  # noqa: SLF001  (the same package)
            return None
        if principal.external_id is None:
            return who((principal.name,))  # a tuple: a name is not a path, whatever characters it has
        users = users_outside(self._store._session.backend, principal.name, principal.external_id)  # noqa: SLF001
        if principal.groups is not None:
            self._memberships.follow(principal.groups, users)
        ids = frozenset([user.id for user in self._memberships.settled(users)])
        return who((principal.name,))._replace(ids=ids)
