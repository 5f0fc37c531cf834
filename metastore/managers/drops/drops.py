"""The pending drops in steps of the whole store, and how any process continues them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    DropPending,
    EntityNotFound,
    LeaseLost,
    PermissionDenied,
)
from metastore.kinds.drop import DESTROYED, STARTED, target_id
from metastore.kinds.handlers import Handler, checked, drop_handler
from metastore.managers.drops.pending import PendingDrop
from metastore.managers.drops.row import pending_drops
from metastore.operation.request import Call, Fencing
from metastore.operation.session import Session

_log = logging.getLogger("metastore")


class Drops:
    """The drops in steps that are pending; ``store.drops``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pending(self) -> Iterator[PendingDrop]:
        """Yield the pending drops in steps, ordered by id, including those of other processes, alive or dead."""
        session = self._session
        for drop in pending_drops(session.backend):
            if session.access is None or session.backend.by_id([target_id(drop.name)])[0] is not None:
                yield PendingDrop(session, drop, held=False)

    def resume(self, handler: Handler | None = None, *, lease: Fencing | None = None) -> int:
        """Take over abandoned drops, destroy their data, and finish them; return how many were finished.

        ``handler`` gets each pending drop and destroys its data again, from the beginning; by default, the handler that
        ``ms.on_drop`` registered for the kind. Drops of kinds without a handler stay pending. So do drops whose ttl has
        not passed, and drops that the user may not make. A drop that had started is finished only after the previous
        holder's ttl has passed once more. If the handler fails for a drop, the other drops continue; the first such
        error is raised at the end. Raises InvalidArgument. Raises BackendUnavailable at once if the database does not
        answer: call again later. Raises LeaseLost at once if the ``lease``, which each step requires, is lost.
        """
        if handler is not None:
            checked(handler)
        Call(lease=lease).tokens()
        ready, errors, finished = list[PendingDrop](), list[Exception](), 0
        try:
            for one in list(self.pending()):
                try:
                    ready += [one] if self._destroyed(one, handler, lease) else []
                except LeaseLost:
                    raise
                except Exception as error:  # noqa: BLE001  (one that always fails must not hold up those after it)
                    _log.warning("the drop of %s was not resumed: %s", one.path, error)
                    errors.append(error)
                    if isinstance(error, BackendUnavailable | DeadlineExceeded):
                        # raises if the database does not answer: each further drop would wait for the database too
                        self._session.backend.ping()
        finally:  # after an interrupt too, because the handler has destroyed the data of these drops
            finished = sum([self._finished(one, lease) for one in ready])
        if errors:
            raise errors[0]
        return finished

    def _destroyed(self, pending: PendingDrop, handler: Handler | None, lease: Fencing | None) -> bool:
        """Take a drop over and destroy its data; return False if the drop stays pending."""
        if pending.phase == DESTROYED:
            return True
        chosen = drop_handler(pending.kind) if handler is None else handler
        if chosen is None:
            _log.warning("no handler for the drop of %s (a %s): it stays pending", pending.path, pending.kind)
            return False
        try:
            pending.take_over(lease=lease)
            if pending.phase != STARTED:
                pending.started(lease=lease)
        # another process holds or has finished the drop, or the user may not see it
        except (DropPending, EntityNotFound, PermissionDenied):
            return False
        chosen(pending)
        return True

    def _finished(self, pending: PendingDrop, lease: Fencing | None) -> bool:
        try:
            return pending.finish(lease=lease)
        # another process has taken the drop over or ended it, or the user may not finish it
        except (DropPending, EntityNotFound, PermissionDenied):
            return False
