"""The session: the state that all calls of a store, or of a transaction, share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, cast

from metastore.clock import Clock
from metastore.deadlines import has_deadline, remaining, until
from metastore.errors import InvalidArgument
from metastore.governance.access import Access
from metastore.governance.evidence import Memory
from metastore.governance.seen import Seen
from metastore.kinds.entity import Entity
from metastore.metrics import Metrics
from metastore.operation.hot import ForgetfulMap, Hot
from metastore.operation.recent import Recent
from metastore.operation.request import Call, Request
from metastore.operation.seals import Seals
from metastore.port.backend import PARTS, Backend, Reads
from metastore.port.feed import database_of
from metastore.port.records import Lookup, Node, Resolved
from metastore.retry.bucket import TokenBucket
from metastore.retry.policy import RetryPolicy

T = TypeVar("T")

_UNBOUNDED: Final = ("close", "hearing", "leases")
"""Leases have deadlines of their own: their renewal outlives the call."""


class Combines(Protocol):
    """The interface of :mod:`metastore.combine`, which is in a higher layer."""

    def resolve(self, lookup: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads."""

    def perform(self, session: Session, request: Request[T], call: Call) -> T:
        """Run a request until it is committed, or ends with a value or an error."""


Found = Entity | tuple[Node, ...]
"""The result of a path: the entity; or, if it is missing, the live nodes of the path."""


class Listed(NamedTuple):
    """One page of the children of ``above``, as one instant shows it."""

    above: tuple[Node, ...]
    items: tuple[Any, ...]
    more: str | None
    """The token of the next page."""
    found: bool = True
    """Whether ``above`` is still at its path. If not, the path leads nowhere, and the token gave the entity's id."""


class Caches(Protocol):
    """The interface of :mod:`metastore.cache`, which is in a higher layer."""

    def held(self, kind: str, target: object) -> Found | None:
        """Return the kept answer for a path as given, or for an id, without a query; None: call :meth:`read`."""

    def read_page(self, key: Hashable, ask: Callable[[], Listed]) -> Listed:
        """Return one page of a listing, at an instant of this call; ``ask`` asks the database."""

    def read(self, key: Hashable, names: tuple[str, ...], ask: Callable[[], Found]) -> Found:
        """Return the answer for ``names`` (() for an id) at an instant of this call; ``ask`` asks the database."""

    def read_many(
        self, wanted: Sequence[tuple[Hashable, tuple[str, ...]]], ask: Callable[[], list[Found]]
    ) -> list[Found]:
        """Return the answer for each key and path, all at one instant; ``ask`` asks the database for all of them."""

    def forget(self) -> None:
        """Forget everything that is kept."""


@dataclass
class ManagerSession:
    """The session of a manager: a store's, or a transaction's, which does not trust loaded entities.

    A store's is a :class:`Session`. A transaction's has only the reads and the commit of its overlay.
    """

    in_transaction: ClassVar[bool] = True
    backend: Reads
    clock: Clock
    policy: RetryPolicy
    principal: str | None
    metrics: Metrics = field(default_factory=Metrics)
    bucket: TokenBucket = field(init=False)
    hot: Hot = field(init=False)
    recent: Recent = field(default_factory=Recent)
    doors: ForgetfulMap[Any] = field(default_factory=ForgetfulMap)
    """The doors of threads that wait for the same entities: see :mod:`metastore.transaction.turns`."""
    chains: ForgetfulMap[Any] = field(default_factory=ForgetfulMap)
    """The chains of callers that write one entity and commit together: see :mod:`metastore.combine.chain`."""
    outer: Session | None = None
    """For a transaction's session: the session of its store."""
    bounds_reads: bool = False
    """A view's own deadline also limits its reads. (The backend applies a store's deadline to reads.)"""
    access: Access | None = None
    """The rights of the user for whom the session works; None: the session is trusted."""
    cache: Caches | None = field(default=None, init=False)
    """The cache of reads; None: no cache. A transaction has none: it reads the database."""
    seals: Seals | None = field(default=None, init=False)
    """The secret declarations of catalogs, and the data keys. A view of the past, which writes nothing, has none."""
    declares: bool = field(default=False, init=False)
    """Whether a transaction has made a catalog, or changed a catalog's settings. It then reads the settings itself."""
    reason: str | None = None
    """The reason for its calls, unless a call gives its own."""
    read_only: str = ""
    """The error message for writes through a view that is read-only."""
    _epoch: str | None = None

    def epoch(self) -> str:
        """Return the epoch of the database's feed, which tokens of pages carry."""
        assert self.outer is not None
        return self.outer.epoch()

    def policy_of(self, call: Call) -> RetryPolicy:
        """Return the retry policy with the call's own deadline."""
        return self.policy if call.deadline is None else replace(self.policy, deadline=float(call.deadline))

    def ends_of(self, call: Call) -> float:
        """Return the instant at which a call that begins now ends: its own deadline, or that of a call around it."""
        deadline = self.policy_of(call).deadline
        return self.clock.monotonic() + min(deadline, remaining(self.clock, deadline))

    def resolve(self, lookup: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads."""
        (resolved,) = self.backend.resolve([lookup])
        return resolved

    def of_store(self) -> Session:
        """Return the store's session, with the whole backend. Raises InvalidArgument in a transaction."""
        raise InvalidArgument(self.read_only or "this call is not part of a transaction; use the store")

    def __post_init__(self) -> None:
        self.bucket = TokenBucket(_TOKENS, _TOKENS_PER_SECOND, self.clock)
        self.hot = Hot(self.clock)


@dataclass
class Session(ManagerSession):
    """The state that all calls of one store share: the whole backend, and how it is used."""

    in_transaction = False
    backend: Backend
    combiner: Combines | None = field(default=None, init=False)
    """The combiner, which sends calls that wait at the same time together; None: the backend gains nothing from it."""
    rights: Memory = field(default_factory=Memory, init=False)
    """The remembered rights of users."""

    def resolve(self, lookup: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads, in one query with the paths of other waiting calls."""
        if self.combiner is None:
            return self.resolve_alone(lookup)
        if not self.bounds_reads or has_deadline():
            return self.combiner.resolve(lookup)
        with until(self.clock.monotonic() + self.policy.deadline):
            return self.combiner.resolve(lookup)

    def resolve_alone(self, lookup: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads, and note the nodes of its parents."""
        (resolved,) = self.backend.resolve([lookup])
        self.recent.note_parents(lookup, resolved.nodes)
        return resolved

    def of_store(self) -> Session:
        """Return this session."""
        return self

    def bound(self, call: Call) -> Session:
        """Return a session with the call's principal, deadline and reason, which shares everything else."""
        bound, deadline = copy(self), call.deadline
        bound.principal = self.principal if call.principal is None else call.principal
        bound.reason = self.reason if call.reason is None else call.reason
        if deadline is not None:
            bound.policy, bound.bounds_reads = replace(self.policy, deadline=float(deadline)), True
            base = self.backend if self.access is None else self.access.backend
            bound.backend = cast(Backend, Bounded(base, self.clock, bound.policy.deadline))
            if self.access is not None:
                bound.access = self.access.through(bound.backend)
                bound.backend = cast(Backend, Seen(bound.backend, bound.access))
        return bound

    def as_user(self, access: Access) -> Session:
        """Return a session with a user's rights, which shares everything else."""
        bound = copy(self)
        bound.principal, bound.access = access.who.name, access
        bound.cache = None  # the cache does not distinguish users
        bound.backend = cast(Backend, Seen(self.backend, access))
        bound.combiner = None  # a batch uses the store's own backend, without the user's rights
        return bound

    def of_transaction(self) -> Session:
        """Return a session for one transaction. It notes the evidence of its reads, for the commit."""
        if self.access is None:
            return self
        bound, access = copy(self), self.access.of_transaction()
        bound.access, bound.backend = access, cast(Backend, Seen(access.backend, access))
        return bound

    def epoch(self) -> str:
        """Return the epoch of the database's feed, read once: a store must be opened again after a restore."""
        if self._epoch is None:
            self._epoch = database_of(self.backend.feed_start()[0])
        return self._epoch


_TOKENS, _TOKENS_PER_SECOND = 100, 20.0
"""How many retries a process may make, at once and per second, that no other operation's success has caused."""


class Bounded:
    """A port whose calls each end within ``seconds``, as a view of the store says, unless a deadline is set already."""

    def __init__(self, port: Any, clock: Clock, seconds: float) -> None:
        self._port, self._clock, self._seconds = port, clock, seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name in _UNBOUNDED:
            return found
        if name in PARTS:
            return Bounded(found, self._clock, self._seconds)
        return self._in_time(found) if callable(found) else found

    def _in_time(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if has_deadline():
                return method(*arguments, **options)
            with until(self._clock.monotonic() + self._seconds):
                return method(*arguments, **options)

        return call
