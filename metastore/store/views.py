"""Views of a store for one request or for one user."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from metastore.cache.store import StoreCache
from metastore.errors import EntityNotFound, PermissionDenied
from metastore.governance.access import Access, Want
from metastore.governance.decision import Decision
from metastore.governance.privileges import known_privilege
from metastore.governance.seen import seen_by
from metastore.kinds.attached import Attached
from metastore.kinds.entity import Entity
from metastore.managers.secrets.reveal import entity_of, reveal
from metastore.managers.target import Target
from metastore.names import Path, parse_path
from metastore.operation.authorized import check_principal
from metastore.operation.keys import clean_operation_id
from metastore.operation.outcome import Outcome, entities_in
from metastore.operation.request import Call
from metastore.operation.session import Session
from metastore.store.store import Store
from metastore.store.who import who_is
from metastore.transfer.outcomes import Exported

if TYPE_CHECKING:
    from metastore.transfer.files import FileOrName

__all__ = ["BoundStore", "UserStore"]


class BoundStore(Store):
    """A view of a store for one request, which :meth:`Store.bind` returns."""

    def __init__(self, store: Store, session: Session) -> None:
        self._url, self._admins, self._cache = store._url, store._admins, store._cache  # noqa: SLF001  (the same class)
        self._replicas = store._replicas  # noqa: SLF001
        self._stand_on(session)
        self.leases = store.leases.bound(session)

    def close(self) -> None:
        """Do nothing: the store stays open."""


class UserStore(BoundStore):
    """A store as a user may use it (:meth:`Store.as_user`). It refuses every call that it does not check."""

    @property
    def _access(self) -> Access:
        assert self._session.access is not None
        return self._session.access

    def _refused(self, what: str) -> PermissionDenied:
        name = self._access.who.name
        message = f"{name} may not {what}; only the library itself and admins may (ms.open(admins=…))"
        return PermissionDenied(name, "admin", "", message)

    def bind(self, *, principal: str | None = None, deadline: float | None = None, reason: str | None = None) -> Store:
        """Return a view of the same user with another deadline and reason. Raises PermissionDenied for a principal."""
        check_principal(self._access, Call(principal, deadline))
        return UserStore(self, self._session.bound(Call(None, deadline, reason=reason)))

    def as_user(self, user: Path | Entity) -> Store:
        """Raise PermissionDenied: a user cannot act as another one."""
        raise self._refused("act as another user")

    def allowed(self, user: Path | Entity, privilege: str, on: Target, *, kind: str | None = None) -> Decision:
        """Return whether this user has a privilege on an object that it sees.

        Raises PermissionDenied for another user.
        """
        mine, asked = self._access.who, who_is(self._access.backend, user)
        if asked.name != mine.name:
            raise self._refused("ask for the rights of others")
        chain, word = entity_of(self._session, on, kind).record.chain, known_privilege(privilege)
        decided = self._access.decision(chain, word)
        # ``user`` may mean the user of this name in one metalake only, or in another metalake than this view's
        if decided and asked != mine:
            return Access(self._access.backend, asked).decision(chain, word)
        return decided

    def reveal(self, target: Target, key: str, *, kind: str | None = None, expected: str | None = None) -> str:
        """Return a secret if the user owns the object, or has ``use_secret``.

        Raises PermissionDenied, and the errors of ``Store.reveal``.
        """
        entity = entity_of(self._session, target, kind)
        self._access.require(entity.record.chain, Want(entity.id, "reveal"))
        return reveal(self._session, entity, key, expected)  # the entity as it was before the check

    def export_to(self, to: FileOrName, target: Target | None = None, **options: Any) -> Exported:
        """Export an entity that the user owns. Raises PermissionDenied for any other, and for the whole database."""
        if target is None or options.get("ids") or options.get("history"):
            raise self._refused("export the whole database")
        from metastore.transfer import calls  # noqa: PLC0415  (a process imports only what it uses)

        session = copy(self._session)
        session.backend = self._access.backend
        settings: dict[str, Any] = {"ids": False, "history": False, "progress": None} | options
        while True:
            entity = entity_of(self._session, target, None)
            rests = self._access.require(entity.record.chain, Want(entity.id, "own"))
            try:
                return calls.export_to(session, to, entity, **settings, rests=rests.pairs)
            except calls.RightsChanged:  # another operation has changed evidence of the right
                continue

    def outcome(self, operation_id: UUID | str) -> Outcome:
        """Return the outcome of one of the user's own operations, if it sees the result; otherwise *unknown*."""
        steps = self._session.backend.steps(clean_operation_id(operation_id))
        if not steps or any(step.principal != self._access.who.name for step in steps):
            return Outcome("unknown")
        found = super().outcome(operation_id)
        ends = {i for step in steps for i in seen_by(step)} | entities_in(found.result)
        return found if self._sees(ends) and self._sees_attached(found.result) else Outcome("unknown")

    def _sees(self, ids: Iterable[int]) -> bool:
        return all(row is not None for row in self._session.backend.by_id([*ids]))

    def _sees_attached(self, result: object) -> bool:
        """Whether the user sees the attached entity of a relation. A stored result has only the path of that entity."""
        if not isinstance(result, Attached):
            return True
        try:
            return bool(entity_of(self._session, parse_path(result.path), result.kind))
        except EntityNotFound:
            return False

    def backup(self, *_: Any, **__: Any) -> NoReturn:
        """Raise PermissionDenied."""
        raise self._refused("copy the database")

    def import_from(self, *_: Any, **__: Any) -> NoReturn:
        """Raise PermissionDenied."""
        raise self._refused("import")

    def gc(self, **_: Any) -> NoReturn:
        """Raise PermissionDenied."""
        raise self._refused("collect garbage")

    def verify(self) -> NoReturn:
        """Raise PermissionDenied."""
        raise self._refused("verify the database")

    @property
    def cache(self) -> StoreCache:
        """The figures of the store's cache. A user does not see the members."""
        return self._cache.of_user(self._refused)

    def stats(self) -> NoReturn:
        """Raise PermissionDenied."""
        raise self._refused("see the statistics of the database")

    def losses(self, limit: int = 50) -> NoReturn:
        """Raise PermissionDenied."""
        raise self._refused("see who lost to whom")
