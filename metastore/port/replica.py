"""How new the state is that a backend shows, for a replica and for the primary alike.

A server that was started again may show an older state: see :class:`Restarts`.

On a replica, changes appear one by one, in the order of their commits, which may differ from the order of their
positions. A change with a lower position may be missing while one with a higher position is visible. :class:`Shown`
tells when no change is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from metastore.port.backend import Backend


class NewestChange(NamedTuple):
    """The newest change that a state has, or the last one that gc has removed from it."""

    seq: int
    operation_id: UUID | None


class Shown(NamedTuple):
    """What one snapshot shows."""

    newest: NewestChange
    """All lower positions were drawn by transactions below ``next``."""
    next: int
    """No transaction that had begun when ``newest`` committed has this id or a greater one."""
    oldest: int
    """All transactions with a lower id are over: the snapshot has their commits."""
    replica: bool
    """The server was still a replica: it has no changes of its own."""


class ReplicaBackend(Backend, Protocol):
    """A backend whose database may be a replica."""

    @property
    def opened(self) -> object:
        """A new object after each connection that is opened: the server may have been restarted in between.

        A replica that restarts after a crash may show an older state than before.
        """

    def shown(self) -> Shown:
        """Return the state that the database shows now."""


@runtime_checkable
class Restarts(Protocol):
    """A backend whose server may be restarted, perhaps from a backup, while a store is open."""

    def when_started(self, forget: Callable[[], None]) -> None:
        """Call ``forget`` before the first answer of a server that was restarted since, or of another server."""
