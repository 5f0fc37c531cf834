"""The pages of one kind's listings, and of the history of one of its entities."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.entity import Entity, Version
from metastore.kinds.kind import Kind
from metastore.managers.history import version_of
from metastore.managers.listing import parent_nodes
from metastore.managers.page import Listed, Page
from metastore.managers.pages import clean_prefix, page_after, page_of
from metastore.managers.target import Target, find, names_of
from metastore.operation.request import View, committed
from metastore.operation.session import ManagerSession
from metastore.port.commit import DROPPED, LIVE
from metastore.port.records import Child, Node, Step
from metastore.port.records import RowPage as Rows

__all__ = ["E", "Paged"]

E = TypeVar("E", bound=Entity)


class Paged(Generic[E]):
    """What a manager shows in pages."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        self._session = session
        self._kind = kind

    def page(
        self, parent: Target | None = None, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[E]:
        """Return one page of the direct children, by name; ``token`` is the ``next_token`` of the page before.

        ``prefix`` is taken as it is. Raises InvalidArgument for a token of another listing.
        """
        return self._page("children", parent, LIVE, size, token, prefix)

    def dropped_page(
        self, parent: Target | None = None, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[E]:
        """Return one page of the children that were dropped, by name, then oldest first. See :meth:`page`."""
        return self._page("dropped", parent, DROPPED, size, token, prefix)

    def _page(
        self, what: str, parent: Target | None, state: int, size: int, token: str | None, prefix: str | None
    ) -> Page[E]:
        backend, kind = self._session.backend, self._kind

        def read(above: Node, after: Any, limit: int, guards: Any) -> Rows[Child]:
            return backend.children(above.id, kind.name, kind.family, state, tuple(after), limit, guards)

        return page_of(
            self._session,
            Listed(what, kind.name, clean_prefix(prefix)),
            size,
            token,
            lambda view: parent_nodes(view, kind, parent),
            read,
            lambda child: [child.key, child.node.id],
            lambda nodes, child: cast(E, kind.entity(child.record(nodes, live=state == LIVE), backend.origin)),
        )

    def names_page(
        self, parent: Target | None = None, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[str]:
        """Return one page of the children's names, ordered by code point. See :meth:`page`."""
        backend, kind = self._session.backend, self._kind
        return page_of(
            self._session,
            Listed("names", kind.name, clean_prefix(prefix)),
            size,
            token,
            lambda view: parent_nodes(view, kind, parent),
            lambda above, after, limit, guards: backend.names(
                above.id, kind.name, kind.family, after[0], limit, guards
            ),
            lambda row: [row[0], 0],
            lambda _, row: row[1],
        )

    def history_page(self, target: Target, *, size: int = 100, token: str | None = None) -> Page[Version]:
        """Return one page of what happened to the entity, oldest first. See :meth:`page`."""

        def entity_of(known: int | None) -> int:
            try:
                found = self._with_history(target)
            except EntityNotFound:
                if known is None or isinstance(target, Entity):
                    raise
                return known
            if known is not None and found != known:
                raise InvalidArgument("the token is of another entity's history; begin without a token")
            return found

        backend = self._session.backend

        def entry(step: Step) -> Version:
            return version_of(step, backend.origin)

        listed = Listed("history", self._kind.name)
        return page_after(self._session, listed, size, token, entity_of, backend.history, _version_number, entry)

    def _with_history(self, target: Target) -> int:
        """Return the id of the entity whose history is asked for. Raises EntityNotFound."""
        if isinstance(target, Entity):
            names_of(self._kind, target)
            committed(self._session.backend, target)
            known = self._session.backend.by_id([target.id])[0]
            if known is None:
                raise EntityNotFound(target.path, f"{target.path} (id {target.id}) was purged; its history is gone")
            return target.id
        return find(View(self._session.backend, False), self._kind, target).chain[-1].id


def _version_number(step: Step) -> int:
    return step.version or 0
