"""Tell how new the state is that a backend shows, on a replica or on the primary.

A restarted server may show an older state: see :class:`Restarts`.

On a replica, changes appear one by one in the order of their commits, which may differ from the order of their
positions. So a change may be missing while another one with a higher position is visible. :class:`Shown` says when no
change is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from metastore.port.backend import Backend


class NewestChange(NamedTuple):
    """The newest change in a state, or the last one that gc has removed from it."""

    seq: int
    operation_id: UUID | None


class Shown(NamedTuple):
    """The changes that one snapshot shows."""

    newest: NewestChange
    """All lower positions were drawn by transactions below ``next``."""
    next: int
    """No transaction that had begun when ``newest`` committed has this id or a greater one."""
    oldest: int
    """All transactions with a lower id are over: the snapshot has their commits."""
    replica: bool
    """The server was still a replica, without changes of its own."""


class ReplicaBackend(Backend, Protocol):
    """A backend whose database may be a replica."""

    @property
    def opened(self) -> object:
        """A new object after each new connection, because the server may have been restarted in between.

        A replica that restarts after a crash may show an older state than before.
        """

    def shown(self) -> Shown:
        """Return the state that the database shows now."""


@runtime_checkable
class Restarts(Protocol):
    """A backend whose server may be restarted, perhaps from a backup, while a store is open."""

    def when_started(self, forget: Callable[[], None]) -> None:
        """Call ``forget`` before the first answer from a restarted server, or from another server."""
