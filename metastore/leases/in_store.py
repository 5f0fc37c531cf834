"""The leases of a store, in its own database, so that its commits can require their tokens."""

from __future__ import annotations

from copy import copy
from typing import NoReturn, cast

from metastore.arguments import positive_integer, shown
from metastore.errors import InvalidArgument, PermissionDenied
from metastore.leases.database import DatabaseBook
from metastore.leases.leases import Leases, clean_lease, clean_owner
from metastore.leases.staging import StoreStaging
from metastore.names import clean_text
from metastore.operation.session import Session
from metastore.port.conditions import LeaseToken

__all__ = ["StoreLeases"]


class _Refused:
    """Replaces the leases of a store that acts for a user: each use raises PermissionDenied."""

    def __init__(self, user: str) -> None:
        self._user = user

    def bound(self, _: Session) -> _Refused:
        """Return this object: another view of the same user has no leases either."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        message = (
            f"{self._user} may not use leases: their names are not objects, so no right can cover them; let the "
            "service acquire a lease with its own store, and give it to the user's call as lease=…"
        )
        raise PermissionDenied(self._user, "admin", "", message)


class StoreLeases(Leases):
    """The leases of one store: ``store.leases``."""

    def __init__(self, session: Session) -> None:
        self._database = DatabaseBook(session)
        self.staging = StoreStaging(session)
        """For the leases of another book whose tokens this store notes."""
        super().__init__(self._database, session.clock, session.policy.deadline, self.staging)

    def bound(self, session: Session) -> StoreLeases:
        """Return these leases for another session on the same backend. The held leases are shared.

        A user has no leases: a lease's name is not an object, so no privilege can be granted on it.
        """
        if not isinstance(session, Session):
            raise InvalidArgument(
                f"leases are bound to the session of a store, not to {shown(session)}; see store.bind()"
            )
        if session.access is not None:
            return cast(StoreLeases, _Refused(session.access.who.name))
        bound, book, staging = copy(self), DatabaseBook(session), StoreStaging(session)
        vars(bound).update(_database=book, _book=book, staging=staging, _staging=staging)
        vars(bound).update(_deadline=session.policy.deadline)
        return bound

    def mirror(self, name: str, token: int | None, owner: str, incarnation: str) -> LeaseToken | None:
        """Note the token of a lease that another book keeps, so that commits in this store can require it.

        ``token`` None: the lease has no token, so this store assigns the next one. Return the token that commits
        require, or None if a newer token is noted already. A book outside the store grants a lease only after this
        call. Raises InvalidArgument.
        """
        if token is not None:
            token = positive_integer(token, "a token")
        if not clean_text(incarnation, "an incarnation") or "\x00" in incarnation:
            raise InvalidArgument("an incarnation is a non-empty string without NUL")
        return self._database.mirror(clean_lease(name), token, clean_owner(owner), incarnation)

    def noted(self, name: str) -> int:
        """Return the newest token that was noted for a lease of another book; 0: none was noted."""
        return self._database.noted(clean_lease(name))

    def noted_for(self, name: str) -> str | None:
        """Return the incarnation for which that token was noted; None: none was noted."""
        return self._database.noted_for(clean_lease(name))
