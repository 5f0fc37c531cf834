"""The calls of a store about its past: changes in order, the state at a position, losses of attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from metastore.arguments import boolean, positive_seconds
from metastore.errors import InvalidArgument
from metastore.feed import feed, position
from metastore.feed.follow import Selection, selected
from metastore.feed.lag import noted
from metastore.feed.page import changes_page
from metastore.feed.visible import Sight
from metastore.kinds.entity import Change, Entity
from metastore.managers.all import Managers
from metastore.managers.pages.page import Page
from metastore.managers.target import Target
from metastore.names import Path, clean_name
from metastore.operation.kept_result import with_origin
from metastore.operation.keys import clean_operation_id
from metastore.operation.outcome import Outcome, outcome_of
from metastore.operation.request import Call, Fencing
from metastore.operation.session import Session
from metastore.operation.timed import stepping, timed
from metastore.past.pins import Pin, add_pin, all_pins
from metastore.past.reads import reads_at
from metastore.past.view import Past, past_at
from metastore.port.unreadable import Unreadable
from metastore.replicas.reads import ReplicaReads, Replicas
from metastore.replicas.view import Replica

if TYPE_CHECKING:
    from metastore.past.diff import Difference
    from metastore.store.losses import Loss

__all__ = ["Timeline"]


class Timeline(Managers):
    """The past of a store: its changes in order, the state after each change, and the way back."""

    _session: Session
    _replicas: Replicas | None

    def changes(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        unreadable: Unreadable | None = None,
        kinds: Iterable[str] | None = None,
        under: Path | Entity | None = None,
        kind: str | None = None,
        follow: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Change]:
        """Yield at most ``limit`` changes after a position (None: from the start). See :mod:`metastore.feed.feed`.

        ``kinds`` selects changes of these kinds. ``under`` selects those of one entity and of the entities below it at
        the time; it follows the entity by its id, through renames, moves and restores. ``kind`` is the kind of the
        entity at a path that several families share. With ``follow`` the call waits for more changes, and ends after
        ``timeout`` seconds without a selected change (None: never). Without it, a step that finds no change until the
        store's deadline raises DeadlineExceeded. If few changes are selected, or the user sees few, use
        ``changes_page``: it reads a bounded number, and returns where to continue.

        A damaged row raises UnreadableRow; with ``unreadable`` it is left out, and ``unreadable`` gets the error.
        Raises HistoryGone after a position whose next changes gc has removed: read the tables again. Raises
        InvalidArgument for a position of another database, or a path that several families share. Raises EntityNotFound
        or DropPending for a path at which there is no live entity.
        """
        session = self._session
        boolean(follow, "follow")
        if (kinds, under, kind, timeout) != (None, None, None, None) or follow:
            chosen = Selection(kinds, under, kind, follow, timeout)
            return selected(session, after, limit, unreadable, chosen)
        sight = None if session.access is None else Sight(session.access)
        changes = feed.changes(session.backend, session.clock, after, limit, unreadable, sight)
        return noted(stepping(session, changes), limit, "changes", session.metrics, session.clock)

    def changes_page(
        self,
        *,
        after: str | None = None,
        size: int = 100,
        kinds: Iterable[str] | None = None,
        under: Path | Entity | None = None,
        kind: str | None = None,
    ) -> Page[Change]:
        """Return one page of the change feed. ``next_token`` is a position, for ``after``; None: no more at present.

        ``kinds`` selects changes of these kinds. ``under`` selects changes of an entity and of the entities below it at
        the time, or of all entities that were below a path; ``kind``: see ``changes``. A page may have fewer items than
        ``size``, even none, and a token. Raises the errors of ``changes``.
        """
        return timed(self._session, "changes_page", changes_page, self._session, after, size, kinds, under, kind)

    def position(self, *, back: int = 0, before: str | None = None) -> str:
        """Return the position of the newest change; each change whose call has returned is at it or before it.

        All changes up to it are decided. Raises DeadlineExceeded if a transaction in the database stays open too long.

        ``back``: return an earlier position instead, at once. At most ``back`` changes are between it and ``before``
        (None: the newest change), and gc has removed none of them. So a reader can show the newest changes first.
        Raises InvalidArgument; HistoryGone if another server has taken over that may lack ``before``.
        """
        if back or before is not None:
            return position.earlier(self._session, back, before)
        return position.newest(self._session)

    def at(self, when: str | datetime) -> Past:
        """Return a read-only view of the store at a position, or at a time (inclusive).

        The view has the store's readers: ``store.at(…).tables.list("lake.c.s")``. A position inside a transaction means
        the state before that transaction. Raises HistoryGone if gc has not kept the state. Raises InvalidArgument for a
        position that is in the future or of another database, or a time without a time zone.
        """
        return past_at(self._session, position.position_in(self._session, when))

    def replica(self, *, at_least: str | None = None, wait: float = 0.5) -> Replica:
        """Return a read-only view of a replica of ``read_from``; its reads may be old, and show how old they are.

        The view has the store's readers: ``store.replica().tables.load(path)``. Each of its reads shows all changes up
        to ``view.position``. ``at_least``: a position that it must show. The call waits at most ``wait`` seconds for a
        replica that has reached this position, and otherwise reads from the primary. All other reads of the store use
        the primary. Raises InvalidArgument without ``read_from``, or for a text that is not a position of this
        database.
        """
        position.check_whole(self._session)
        if self._replicas is None:
            raise InvalidArgument("this store knows no replica; open it with read_from=[…], or read without replica()")
        wait = positive_seconds(wait, "how long to wait for a replica") if wait else 0.0
        return Replica(self._session, timed(self._session, "replica", ReplicaReads, self._replicas, at_least, wait))

    def diff(
        self,
        a: str | datetime,
        b: str | datetime | None = None,
        *,
        under: Target | None = None,
        kind: str | None = None,
    ) -> Iterator[Difference]:
        """Yield the differences between two positions or times (b None: now), in path order, one for each entity.

        It reads all changes between the two. An entity that was created and dropped between them has no difference.
        With ``under``, it yields only differences at and below that entity. A path leads where it leads at ``b``;
        ``kind`` is the kind of the entity at a path that several families share. If ``a`` is later than ``b``, it
        yields what going back would change. Raises HistoryGone, EntityNotFound, DropPending, InvalidArgument;
        DeadlineExceeded if it does not find the first difference by the deadline.
        """
        from metastore.past.diff import differences, scope_at  # noqa: PLC0415  (a process imports only what it uses)

        session = self._session
        first = position.position_in(session, a)
        last = position.last(session) if b is None else position.position_in(session, b)
        before, after = reads_at(session, first), reads_at(session, last)
        return stepping(session, differences(before, after, scope_at(after, under, kind)))

    def revert(
        self,
        target: Target,
        *,
        to: str | datetime,
        kind: str | None = None,
        dry_run: bool = False,
        lease: Fencing | None = None,
        reason: str | None = None,
    ) -> list[Difference]:
        """Restore an entity, and all entities below it, to a position or time; return the differences.

        The entity keeps its present name and place. Entities that were dropped or moved out come back, with their ids;
        new entities are dropped; tags, owners and grants become what they were. Up to 10,000 differences are one
        commit. More differences take commits of 2,000 steps: if one fails, the earlier ones stay, and the same call
        does the rest. ``dry_run``: nothing is written. ``kind`` is the kind of the entity at a path that several
        families share. Raises HistoryGone; EntityNotFound if the entity did not exist then; InvalidArgument for an
        entity that cannot come back; EntityAlreadyExists if another entity has an old name; DropPending, ScopeFrozen;
        LeaseLost if the ``lease`` is lost. ``reason``: why, for history and feed.
        """
        from metastore.past.revert import revert  # noqa: PLC0415  (a process imports only what it uses)

        at = position.position_in(self._session, to)
        return revert(self._session, target, kind, at, Call(lease=lease, reason=reason), dry_run=dry_run)

    def pin(self, name: str, *, at: str | datetime | None = None, expires: float | None = None) -> Pin:
        """Name a position (None: the newest), so that gc keeps its past until ``unpin``.

        ``expires``: the seconds after which gc may remove the pin; None: never. Raises EntityAlreadyExists if the name
        is taken, HistoryGone, InvalidArgument; OutcomeUnknown if the answer was lost, so that the pin may exist.
        """
        return add_pin(self._session, name, None if at is None else position.position_in(self._session, at), expires)

    def pins(self) -> list[Pin]:
        """Return all pins, by name."""
        return all_pins(self._session)

    def unpin(self, name: str) -> bool:
        """Remove a pin; return False if it does not exist. Raises OutcomeUnknown if the answer was lost."""
        position.check_whole(self._session)
        return self._session.backend.readers.unpin(clean_name(name))

    def outcome(self, operation_id: UUID | str) -> Outcome:
        """Return the outcome of an operation. It changes nothing: to settle an operation, repeat its call with its id.

        Raises InvalidArgument if ``operation_id`` is not an operation id.
        """
        backend = self._session.backend
        return outcome_of(with_origin(backend.steps(clean_operation_id(operation_id)), backend), backend.origin)

    def losses(self, limit: int = 50) -> list[Loss]:
        """Return the latest losses of this process, each with the winner, newest first; at most 100 losses are kept.

        The winner is read from the history of the entity, if the history shows it.
        """
        from metastore.store.losses import losses  # noqa: PLC0415  (a process imports only what it uses)

        return losses(self._session, limit)
