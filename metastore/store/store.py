"""The entry point: the managers of one database, its transactions, its change feed and its upkeep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path as FilePath
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar
from uuid import UUID

import metastore.store.importing  # noqa: F401  (it acts at each fork)
from metastore.arguments import function
from metastore.cache.options import Cache
from metastore.cache.store import StoreCache, cached
from metastore.clock import Clock
from metastore.combine.combiner import Combiner
from metastore.feed.hints import Hints
from metastore.governance.access import Access
from metastore.governance.decision import Decision
from metastore.governance.evidence import Who
from metastore.governance.privileges import known_privilege
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS
from metastore.leases.in_store import StoreLeases
from metastore.leases.staging import LeftBehind, clear_away
from metastore.managers.attempts.create import IfExists
from metastore.managers.drops.drops import Drops
from metastore.managers.find import find
from metastore.managers.search import wanted
from metastore.managers.secrets.reveal import entity_of, reveal
from metastore.managers.secrets.rotation import SecretStore
from metastore.managers.target import Target
from metastore.metrics import Snapshot
from metastore.names import Path
from metastore.operation.request import Call, Fencing
from metastore.operation.seals import Seals
from metastore.operation.session import Session
from metastore.past.consumers import Consumers
from metastore.port.backend import Backend
from metastore.port.replica import ReplicaBackend
from metastore.port.unreadable import Unreadable
from metastore.replicas.reads import replicas_opened
from metastore.retry.policy import RetryPolicy
from metastore.store.restarts import forget_after_restarts
from metastore.store.timeline import Timeline
from metastore.store.who import who_is
from metastore.transaction.freeze import FreezableSchemas
from metastore.transaction.transaction import Transaction, run_transaction
from metastore.urls import Url, redacted

if TYPE_CHECKING:
    from metastore.gc import Collected
    from metastore.managers.find_page import FoundPage
    from metastore.stats import Stats
    from metastore.transfer.files import FileOrName
    from metastore.transfer.outcomes import Exported, Imported
    from metastore.verify.violations import Violation

__all__ = ["Store"]

T = TypeVar("T")


class Store(Timeline):
    """An open database. Threads may share it. A forked child opens its own connections. It cannot be pickled."""

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
        """Return a view of the store for one request, with its principal, deadline for each call (seconds) and reason.

        The view shares everything else, and takes microseconds to make. Closing it does nothing: the store stays open.
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
        error names. Raises InvalidArgument if ``user`` is neither a name, a path nor a user of this database.
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
        transaction writes nothing and raises OperationIdReused, unless the earlier call was withdrawn (it is
        "cancelled"). The block itself may meet what that call wrote, and raise EntityAlreadyExists: before you repeat
        a transaction, ask ``outcome``. ``reason``: why, for history and feed; one line of at most 200 characters.
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
        from metastore.gc import collect  # noqa: PLC0415  (a process imports only what it uses)

        if clean_up is not None:
            function(clean_up, "clean_up")
        collected = collect(self._session, retention, keep_versions, keep_unread, lease)
        return replace(collected, staged=clear_away(self._session.backend, clean_up))

    def verify(self) -> list[Violation]:
        """Return all violations of the invariants in the whole database. Other programs may write meanwhile.

        It keeps one read-only transaction open and reads everything: run it in quiet hours.
        """
        from metastore.verify.verify import verify  # noqa: PLC0415  (a process imports only what it uses)

        return verify(self._session.backend)

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

        self.ping()  # raises if another file has replaced the database since it was opened
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
        from metastore.stats import collect  # noqa: PLC0415  (a process imports only what it uses)

        return collect(self._session.backend)

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
