"""Check a right before a file is touched: make the change in a transaction, and roll it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metastore.kinds.change import SetProperty
from metastore.kinds.table.kind import Table
from metastore.kinds.view.kind import View

if TYPE_CHECKING:
    from metastore.store import Store
    from metastore.transaction.transaction import Transaction

__all__ = ["is_of_user", "require_alter", "tried", "user_of"]


class _OnlyTried(Exception):
    """Ends a transaction without a commit."""


def is_of_user(store: Store) -> bool:
    """Whether a store belongs to one user, whose rights each call checks."""
    return user_of(store) is not None


def user_of(store: Store) -> str | None:
    """Return the name of the user whose rights a store checks in each call; None: the store checks none."""
    session = store._session  # noqa: SLF001  (the same package)
    return None if session.access is None else session.access.who.name


@contextmanager
def tried(store: Store) -> Iterator[Transaction]:
    """Yield a transaction that is never committed. Its calls raise the same errors as in any transaction."""
    try:
        with store.transaction() as tx:
            yield tx
            raise _OnlyTried
    except _OnlyTried:
        pass


def require_alter(store: Store, entity: Table | View) -> None:
    """Raise PermissionDenied unless the user may alter a table or a view."""
    if is_of_user(store):
        with tried(store) as tx:
            if isinstance(entity, View):
                tx.views.alter(entity, SetProperty("tried", ""))
            else:
                tx.tables.alter(entity, SetProperty("tried", ""))
