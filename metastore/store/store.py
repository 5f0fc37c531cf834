"""The front door: the managers of one database, its transactions, its change feed and its upkeep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path as FilePath
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar
from uuid import UUID

from metastore import gc as collecting
from metastore import stats
from metastore.arguments import function, positive_seconds
from metastore.cache.options import Cache
from metastore.cache.store import StoreCache, cached
from metastore.clock import Clock
from metastore.combine.combiner import Combiner
from metastore.errors import InvalidArgument
from metastore.feed import feed, position
from metastore.feed.follow import Selection, selected
from metastore.feed.hints import Hints
from metastore.feed.lag import noted
from metastore.feed.page import changes_page
from metastore.feed.visible import Sight
from metastore.gc import Collected
from metastore.governance.access import Access
from metastore.governance.decision import Decision
from metastore.governance.evidence import Who
from metastore.governance.privileges import known_privilege
from metastore.kinds.entity import Change, Entity
from metastore.kinds.registry import KINDS
from metastore.leases.in_store import StoreLeases
from metastore.leases.staging import LeftBehind, clear_away
from metastore.managers.all import Managers
from metastore.managers.attempts.create import IfExists
from metastore.managers.drops.drops import Drops
from metastore.managers.find import find, wanted
from metastore.managers.pages.page import Page
from metastore.managers.secrets.reveal import entity_of, reveal
from metastore.managers.secrets.rotation import SecretStore
from metastore.managers.target import Target
from metastore.metrics import Snapshot
from metastore.names import Path, clean_name
from metastore.operation.kept_result import with_origin
from metastore.operation.keys import clean_operation_id
from metastore.operation.outcome import Outcome, outcome_of
from metastore.operation.request import Call, Fencing
from metastore.operation.seals import Seals
from metastore.operation.session import Session
from metastore.operation.timed import stepping, timed
from metastore.past.consumers import Consumers
from metastore.past.diff import Difference, differences, scope_at
from metastore.past.pins import Pin, add_pin, all_pins
from metastore.past.reads import reads_at
from metastore.past.revert import revert
from metastore.past.view import Past, past_at
from metastore.port.backend import Backend
from metastore.port.replica import ReplicaBackend
from metastore.port.unreadable import Unreadable
from metastore.replicas.reads import ReplicaReads, replicas_opened
from metastore.replicas.view import Replica
from metastore.retry.policy import RetryPolicy
from metastore.stats import Stats
from metastore.store.restarts import forget_after_restarts
from metastore.store.who import who_is
from metastore.transaction.freeze import FreezableSchemas
from metastore.transaction.transaction import Transaction, run_transaction
from metastore.transfer.outcomes import Exported, Imported
from metastore.urls import Url, redacted
from metastore.verify import verify as verifying
from metastore.verify.violations import Violation

if TYPE_CHECKING:
    from metastore.managers.find_page import FoundPage
    from metastore.store.losses import Loss
    from metastore.transfer.files import FileOrName

__all__ = ["Store"]

T = TypeVar("T")


class Store(Managers):
    """An open database. Threads may share it. A forked child opens its own connections. It cannot be pickled."""

    _session: Session

    def __init__(
        self,
        url: Url,
        backend: Backend,
        policy: RetryPolicy,
        principal: str | None,
        clock: Clock,
        admins: frozenset[str] = frozenset(),
        cache: Cache | None = None,
        replicas: Mapping[str, ReplicaBackend] | None = None,
    ) -> None:
        self._url = url
        self._admins = admins
        session = Session(backend, clock, policy, Call(principal).principal)
        session.combiner = Combiner.of(session)
        self._cache = StoreCache(None if cache is None else cached(session, cache), backend)
        session.cache = self._cache.used
        session.seals = Seals(backend)
        self.leases = StoreLeases(session)
        forget_after_restarts(session, self.leases)
        try:
            self._replicas = replicas_opened(session, replicas) if replicas else None
        except BaseException:
            if self._cache.used is not None:
                self._cache.used.close()
            backend.close()
            raise
        self._stand_on(session)
        self._hints = Hints(backend, session.metrics, clock) if url.is_postgres else None

    def _stand_on(self, session: Session) -> None:
        super().__init__(session)
        self.schemas: FreezableSchemas = FreezableSchemas(session, KINDS["schema"])
        self.consumers = Consumers(session)
        self.drops = Drops(session)
        self.secrets = SecretStore(session)

    def bind(self, *, principal: str | None = None, deadline: float | None = None, reason: str | None = None) -> Store:
        """Return a view of the store for one request: with its principal, a deadline for each call (seconds), a reason.

        The view shares everything else, and takes microseconds to make. To close it does nothing: the store stays open.
        Raises InvalidArgument.
        """
        call = Call(principal, deadline, reason=reason)
        from metastore.store.views import BoundStore  # noqa: PLC0415  (a view is a store)

        return BoundStore(self, self._session.bound(call))

    def as_user(self, user: Path | Entity) -> Store:
        """Return the store as a user may see and use it: with the same managers, but every call is checked.

        ``user`` is a bare name, an entity or a path (a tuple of names). A string is a bare name: it means, for each
        object, the user with that name in the object's metalake. An entity or a path means one user. The principal of
        all calls is the user's name. The user owns what it creates. Names in ``ms.open(admins=…)`` may do everything.
        docs/governance.md has the rules.

        If the user does not see an object, a load raises EntityNotFound, a drop returns False, and listings leave it
        out. If it sees the object, an operation without the right raises PermissionDenied: grant the privilege that the
        error names. Raises InvalidArgument for a ``user`` that is not a name.
        """
        return self._acting_as(who_is(self._session.backend, user))

    def _acting_as(self, who: Who) -> Store:
        from metastore.store.views import UserStore  # noqa: PLC0415  (a view is a store)

        if self._is_admin(who):
            return self.bind(principal=who.name)
        return UserStore(self, self._session.as_user(Access(self._session.backend, who, self._session.rights)))

    def _is_admin(self, who: Who) -> bool:
        """Whether this is an admin's bare name. A user of a metalake with the same name is not an admin."""
        return who.name in self._admins and who.lake is None and who.ids is None

    def allowed(self, user: Path | Entity, privilege: str, on: Target, *, kind: str | None = None) -> Decision:
        """Return whether a user may use a privilege on an object, and the rules that decide. This changes nothing.

        On a catalog or schema, a privilege for entities below it needs ``use_catalog`` or ``use_schema`` there, too.
        ``user`` is as for ``as_user``; ``kind`` is the kind of the entity at the path (None: any, a container first).
        An owner of the object, or of anything above it, has all privileges there. Raises EntityNotFound,
        InvalidArgument.
        """
        entity = entity_of(self._session, on, kind)
        word = known_privilege(privilege)
        who = who_is(self._session.backend, user)
        if self._is_admin(who):
            return Decision(True, [f"{who.name} is an admin of this process"])
        return Access(self._session.backend, who).decision(entity.record.chain, word)

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
        that time; it is followed by its id, through renames, moves and restores. ``kind`` is the kind of the entity at
        a path that several families share. With ``follow``, the iterator waits for more changes, and ends after
        ``timeout`` seconds without a selected change (None: never). Without it, a step that finds no change until the
        store's deadline raises DeadlineExceeded: if few changes are selected, or visible, use ``changes_page``, which
        reads a limited number and returns the position to continue from.

        A damaged row raises UnreadableRow; with ``unreadable`` it is left out, and that function gets the error. Raises
        HistoryGone if gc has removed changes after the position: read the tables again. Raises InvalidArgument for a
        position of another database, and a path that several families share; EntityNotFound or DropPending if nothing
        is at the path.
        """
        session = self._session
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
        """Return one page of the change feed; ``next_token`` is a position, for ``after``; None: there are no more.

        ``kinds`` selects changes of these kinds. ``under`` selects changes of one entity and of the entities below it
        at that time, or of all entities that were below a path. ``kind`` is as for ``changes``. A page of a selection
        may have fewer items than ``size``, even none, and still a token. Raises the errors of ``changes``.
        """
        return timed(self._session, "changes_page", changes_page, self._session, after, size, kinds, under, kind)

    def position(self, *, back: int = 0, before: str | None = None) -> str:
        """Return the position of the newest change. No change whose call has returned comes after it.

        All changes up to it are decided. Raises DeadlineExceeded if another transaction in the database keeps one open.

        ``back``: return an earlier position instead, at once. At most ``back`` changes lie between it and ``before``
        (None: the newest position), and gc has removed none of them. So a reader can show the newest changes first.
        Raises InvalidArgument.
        """
        if back or before is not None:
            return position.earlier(self._session, back, before)
        return position.newest(self._session)

    def at(self, when: str | datetime) -> Past:
        """Return a read-only view of the store at a position, or at a time (inclusive).

        The view has the readers of the store: ``store.at(…).tables.list("lake.c.s")``. A position inside a transaction
        means the state before that transaction. Raises HistoryGone if gc has not kept that state; InvalidArgument for a
        position that is ahead of the feed or of another database, or for a time without a time zone.
        """
        return past_at(self._session, position.position_in(self._session, when))

    def replica(self, *, at_least: str | None = None, wait: float = 0.5) -> Replica:
        """Return a read-only view of a replica of ``read_from``. Its reads may be old; the view says how old.

        The view has the readers of the store: ``store.replica().tables.load(path)``. Each of its reads shows all
        changes up to ``view.position``. ``at_least``: a position that it must show. The call waits at most ``wait``
        seconds for a replica to reach this position; after that, the view reads the primary. All other reads of the
        store use the primary. Raises InvalidArgument without ``read_from``, and for a text that is not a position of
        this database.
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
        """Yield the differences between two positions or times (``b`` None: now), in path order, one for each entity.

        It reads all changes between the two. An entity that was created and dropped between them has no difference.
        With ``under``, only the differences at and below that entity, now or before, are shown. A path is resolved at
        ``b``; ``kind`` is the kind of the entity there if several families share the path. If ``a`` is later than
        ``b``, the differences show what a revert would do. Raises HistoryGone, EntityNotFound, DropPending,
        InvalidArgument; DeadlineExceeded if the first difference is not known by the deadline.
        """
        session = self._session
        first = position.position_in(session, a)
        last = position.now(session) if b is None else position.position_in(session, b)
        return stepping(session, differences(session, first, last, scope_at(reads_at(session, last), under, kind)))

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
        """Put an entity, and all below it, back to the state at a position or time; return the differences.

        The entity keeps its present name and place. Entities that were dropped or moved out come back, with their ids;
        new ones are dropped; tags, owners and grants are restored. Up to 10,000 differences are one commit. More are
        split into commits of 2,000 steps: if one of these fails, those before it stay, and the same call, repeated,
        does the rest. ``dry_run``: nothing is written. ``kind`` is the kind of the entity at a path that several
        families share. Raises HistoryGone; EntityNotFound if the entity did not exist then; InvalidArgument if
        something cannot come back; EntityAlreadyExists if another entity has an old name; DropPending, ScopeFrozen;
        LeaseLost if the holder has lost the ``lease``. ``reason``: why, for history and feed.
        """
        at = position.position_in(self._session, to)
        return revert(self._session, target, kind, at, Call(lease=lease, reason=reason), dry_run=dry_run)

    def pin(self, name: str, *, at: str | datetime | None = None, expires: float | None = None) -> Pin:
        """Give a name to a position (None: the newest), so that gc keeps its past until ``unpin``.

        ``expires``: after how many seconds gc may remove the pin; None: never. Raises EntityAlreadyExists if the name
        is taken, HistoryGone, InvalidArgument.
        """
        return add_pin(self._session, name, None if at is None else position.position_in(self._session, at), expires)

    def pins(self) -> list[Pin]:
        """Return all pins, by name."""
        return all_pins(self._session)

    def unpin(self, name: str) -> bool:
        """Remove a pin; False: it does not exist."""
        position.check_whole(self._session)
        return self._session.backend.readers.unpin(clean_name(name))

    def find(
        self,
        under: Target | None = None,
        *,
        kind: str | None = None,
        name: str | None = None,
        properties: Mapping[str, str] | None = None,
        recursive: bool = True,
        text: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Entity]:
        """Yield the entities below ``under`` (None: all) of this kind, name and properties, in no promised order.

        ``name`` is a glob on stored names: ``*`` matches any text, ``?`` any character, everything else itself. Below a
        catalog that folds case, it is compared without case. A glob that begins with plain text uses an index, except
        below such a catalog. An entity matches if it has all of ``properties``. ``recursive=False``: direct children
        only. ``text``, compared without case, must occur in the entity's name or comment, in those of a column, in a
        property, or in the name of its owner or of a tag on it or on a column. It uses no index, and does not search
        the values of properties that may be secrets. Each page that the search reads is true at one instant. Each step
        must find an entity, or the end, within the store's deadline, and the whole search must end within ``timeout``
        seconds; otherwise it raises DeadlineExceeded. Raises EntityNotFound, InvalidArgument.
        """
        backend = self._session.backend
        looked_for = wanted(backend, under, kind, name, properties, recursive, text)
        return find(self._session, looked_for, under.path if isinstance(under, Entity) else str(under), timeout)

    def find_page(
        self,
        under: Target | None = None,
        *,
        kind: str | None = None,
        name: str | None = None,
        properties: Mapping[str, str] | None = None,
        recursive: bool = True,
        text: str | None = None,
        size: int = 100,
        token: str | None = None,
        seconds: float = 0.5,
    ) -> FoundPage:
        """Return the next page of the results of ``find``: at most ``size``, after at most about ``seconds``.

        The page says how far the search is, and its token continues from there. A page may have a token but no items.
        The first statement is always finished, so that each page makes progress. An entity that keeps its name and
        place is found once. Raises EntityNotFound, InvalidArgument, DeadlineExceeded.
        """
        from metastore.managers.find_page import find_page  # noqa: PLC0415  (a process imports only what it uses)

        looked_for = wanted(self._session.backend, under, kind, name, properties, recursive, text)
        return find_page(self._session, looked_for, size, token, seconds)

    def transaction(
        self,
        lease: Fencing | None = None,
        *,
        principal: str | None = None,
        deadline: float | None = None,
        operation_id: UUID | str | None = None,
        reason: str | None = None,
    ) -> Transaction:
        """Begin a transaction: ``with store.transaction() as tx: tx.tables.alter(…)``.

        It commits when the block ends. It raises VersionConflict if data that it read has changed: run it again. It
        raises LeaseLost if the holder has lost the ``lease``. ``deadline`` (seconds) applies to the commit. The
        transaction commits under ``operation_id``, so that ``outcome`` can find it. If that id was used before, the
        transaction writes nothing and raises OperationIdReused. ``reason``: why, for history and feed; one line of at
        most 200 characters.
        """
        return Transaction(self._session, Call(principal, deadline, operation_id, lease, reason))  # type: ignore[arg-type]

    def run(
        self,
        fn: Callable[[Transaction], T],
        lease: Fencing | None = None,
        *,
        principal: str | None = None,
        deadline: float | None = None,
        reason: str | None = None,
    ) -> T:
        """Run ``fn(tx)`` in a transaction, and again after each conflict; return its result.

        A run that is repeated may have seen data that was never committed, so its result or error is discarded.

        ``deadline`` (seconds) applies to all attempts together. ``reason``: why, for history and feed. Raises
        DeadlineExceeded, LeaseLost, InvalidArgument, and the errors of ``fn``.
        """
        function(fn, "what a transaction runs")
        return run_transaction(self._session, fn, Call(principal, deadline, lease=lease, reason=reason))

    def gc(
        self,
        *,
        retention: timedelta = timedelta(days=7),
        keep_versions: int = 10,
        keep_unread: timedelta = timedelta(days=30),
        clean_up: Callable[[LeftBehind], None] | None = None,
        lease: Fencing | None = None,
    ) -> Collected:
        """Delete entities that were dropped longer than ``retention`` ago, and old history.

        Many processes may run it at once.

        Of each existing entity, gc keeps the newest ``keep_versions`` versions, and all versions younger than the
        retention. It also keeps the past at each pin, and, for the time ``keep_unread``, the changes that a consumer of
        the feed has not read yet.

        A value that was staged under a lease may become impossible to publish. gc calls ``clean_up`` with each such
        value, perhaps more than once, to remove the data that the value names. Without ``clean_up``, gc leaves these
        rows. Raises InvalidArgument; LeaseLost at the next batch if the holder has lost the ``lease``: the next gc
        continues.
        """
        if clean_up is not None:
            function(clean_up, "clean_up")
        collected = collecting.collect(self._session, retention, keep_versions, keep_unread, lease)
        return replace(collected, staged=clear_away(self._session.backend, clean_up))

    def verify(self) -> list[Violation]:
        """Return all violations of the invariants in the whole database. Other programs may write meanwhile.

        It keeps one read-only transaction open and reads everything: run it in quiet hours.
        """
        return verifying.verify(self._session.backend)

    def export_to(
        self,
        to: FileOrName,
        target: Target | None = None,
        *,
        ids: bool = False,
        history: bool = False,
        progress: Callable[[int], None] | None = None,
        unreadable: Unreadable | None = None,
    ) -> Exported:
        """Write ``target`` and all below it (None: everything) as JSON lines, as it is at one instant.

        ``to`` is a binary stream or the name of a file, which changes only when the export is complete. A stopped
        export to a file is continued by the next call. With ``unreadable``, damaged rows are left out, with everything
        below them. ``ids`` and ``history`` are for the export of a whole database, to be restored into an empty one.
        Raises EntityNotFound.
        """
        from metastore.transfer import calls  # noqa: PLC0415  (a process imports only what it uses)

        return calls.export_to(
            self._session, to, target, ids=ids, history=history, progress=progress, unreadable=unreadable
        )

    def backup(self, file: str | FilePath) -> None:
        """Copy a SQLite database, as it is at one instant, into a new file. Other programs may write meanwhile.

        :func:`metastore.restore` puts it back. Raises InvalidArgument for PostgreSQL, which has tools of its own, and
        for a file that exists; BackendUnavailable, BackendRefused.
        """
        from metastore.transfer.backup import back_up  # noqa: PLC0415  (a process imports only what it uses)

        self.ping()  # the file may have been replaced by another one since it was opened
        back_up(self._url.render_as_string(hide_password=False), file)

    def import_from(
        self,
        source: FileOrName,
        *,
        into: Path | None = None,
        if_exists: IfExists = "error",
        progress: Callable[[float], None] | None = None,
        lease: Fencing | None = None,
        reason: str | None = None,
    ) -> Imported:
        """Write the content of an export below ``into`` (None: at its old paths).

        A repeated call writes what is missing.

        If an entity exists with other content, the call raises EntityAlreadyExists ("error"), leaves it ("return") or
        replaces it ("replace"). A bad file raises InvalidArgument, with the number of the line, before anything is
        written. A file with ids needs an empty database, and takes no ``lease`` and no ``reason``; if its import is
        interrupted, :func:`metastore.restore` continues it. ``reason``: why, for history and feed. Raises LeaseLost if
        the holder has lost the ``lease``; entities that were written before stay.
        """
        from metastore.transfer import calls  # noqa: PLC0415

        return calls.import_from(self._session, source, into, if_exists, progress, Call(lease=lease, reason=reason))

    def outcome(self, operation_id: UUID | str) -> Outcome:
        """Return the outcome of an operation.

        This changes nothing: to settle an operation, repeat its call with its id.

        Raises InvalidArgument if ``operation_id`` is not an operation id.
        """
        backend = self._session.backend
        return outcome_of(with_origin(backend.steps(clean_operation_id(operation_id)), backend), backend.origin)

    def reveal(self, target: Target, key: str, *, kind: str | None = None, expected: str | None = None) -> str:
        """Return the secret that the property ``key`` of ``target`` refers to; this process reads it now.

        ``kind`` is the kind of the entity at a path; None: any, a container first. ``expected``: the reference that the
        caller has read and checked. Raises EntityNotFound; VersionConflict if the property is no longer ``expected``
        (load it again); InvalidArgument if it is not a secret, or if this process cannot read its variable or file.
        Keep the result out of logs.
        """
        return reveal(self._session, entity_of(self._session, target, kind), key, expected)

    def metrics(self) -> Snapshot:
        """Return the metrics of this process's operations since the store was opened; see docs/metrics.md."""
        seen, pool = self._session.metrics.snapshot(), self._session.backend.pool_use()
        return replace(seen, pool=pool, cache=None if self._cache.used is None else self._cache.stats())

    @property
    def cache(self) -> StoreCache:
        """The figures of this store's cache; see docs/cache.md."""
        return self._cache

    def stats(self) -> Stats:
        """Return figures of the database: pending intents, marks, hot entities of the last hour, the feed's lag."""
        return stats.collect(self._session.backend)

    def losses(self, limit: int = 50) -> list[Loss]:
        """Return the latest lost conflicts of this process, the newest first; at most 100 losses are kept.

        The winner is read from the history of the entity, if that shows it.
        """
        from metastore.store.losses import losses  # noqa: PLC0415  (a process imports only what it uses)

        return losses(self._session, limit)

    @property
    def counters(self) -> Counter[str]:
        """Attempts, commits, and conflicts by cause, in this process since the store was opened."""
        return self._session.metrics.counters()

    def ping(self) -> None:
        """Check that the database answers. Raises BackendUnavailable."""
        self._session.backend.ping()

    def close(self) -> None:
        """Release the leases that this store renews, and close all connections."""
        self.leases.close()
        if self._cache.used is not None:
            self._cache.used.close()
        if self._hints is not None:
            self._hints.close()
        if self._replicas is not None:
            self._replicas.close()
        self._session.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store cannot be pickled: it holds connections; pickle the URL and open it there")

    def __repr__(self) -> str:
        return f"<Store {redacted(self._url)}>"
