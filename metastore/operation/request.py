"""A request of a manager, the options of its call, and the view through which an attempt reads.

A request holds an *attempt*: a function that reads through a :class:`View`, decides with pure functions, and returns a
:class:`Proposal` to commit, or the value itself. In the first attempt the view trusts the entities that the caller has
loaded, which saves the read. If an error or a no-op rests on such a guess, the attempt runs again with new reads.
:mod:`metastore.operation.operation` makes one operation of a request, however many attempts it takes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from metastore.arguments import positive_seconds, shown
from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds.change import EntityChange
from metastore.kinds.entity import Entity
from metastore.names import clean_text
from metastore.operation.guards import parents_of
from metastore.operation.keys import clean_operation_id
from metastore.operation.raising import raising, with_raised
from metastore.operation.recent import Recent
from metastore.port.backend import Reads
from metastore.port.conditions import Guard, LeaseToken, Read
from metastore.port.records import Lookup, Node, Record, Resolved, Step
from metastore.port.value import value
from metastore.port.writes import Result, Write

T = TypeVar("T")
Results = tuple[Result | None, ...]

MAX_PRINCIPAL = 1024
"""How many code points a principal has at most: it is in every event that it causes."""
MAX_REASON = 200
"""How many code points a reason has at most."""


@value
class Proposal(Generic[T]):
    """A commit that an attempt proposes, and the function that makes the caller's result once it is applied."""

    guards: tuple[Guard, ...]
    writes: tuple[Write, ...]
    finish: Callable[[Results], T]
    skip_existing: bool = False
    merge: Merge | None = None
    """The changes to announce when the commit loses, if the request does not name them; None: none."""
    exclusive: bool = False
    """Its guards raise scope versions: it waits for the operations that share the guards, and may mark a guard."""
    reads: tuple[Read, ...] = ()
    """Reads that must still be true at the commit. (A transaction notes its reads by itself.)"""
    evidence: tuple[tuple[int, int], ...] = ()
    """The guards on which a user's right to this proposal rests."""

    def __post_init__(self) -> None:
        ids = raising(self.writes)
        if ids:
            object.__setattr__(self, "guards", with_raised(self.guards, ids))
            object.__setattr__(self, "exclusive", True)

    def counting_up(self, entity_id: int) -> Proposal[T]:
        """Return the proposal with a guard that counts up, so that writes below fail if they rest on the old state."""
        return replace(self, guards=with_raised(self.guards, {entity_id}), exclusive=True)


def the_result(results: Results) -> Result:
    """Return the result of a commit's only write."""
    (result,) = results
    assert result is not None
    return result


@runtime_checkable
class Fencing(Protocol):
    """One lease or several, as a condition of a mutation."""

    def tokens(self) -> tuple[LeaseToken, ...]:
        """Return the tokens that a commit requires.

        Raises LeaseLost if the lease is over, was released, or is known to be lost.
        """

    def refused(self) -> MetastoreError:
        """Return the error for a commit that did not find the token."""


@dataclass(frozen=True)
class Call:
    """The options of one call: principal, deadline (seconds), operation id, required lease, and reason."""

    principal: str | None = None
    deadline: float | None = None
    operation_id: UUID | None = None
    lease: Fencing | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            object.__setattr__(self, "reason", clean_reason(self.reason))
        if self.principal is not None:
            object.__setattr__(self, "principal", clean_principal(self.principal))
        if self.deadline is not None:
            positive_seconds(self.deadline, "a deadline")
        if self.lease is not None and (isinstance(self.lease, type) or not isinstance(self.lease, Fencing)):
            raise InvalidArgument(f"a lease must come from acquire, acquire_many or join; got {shown(self.lease)}")
        if self.operation_id is not None:
            object.__setattr__(self, "operation_id", clean_operation_id(self.operation_id))

    def tokens(self) -> tuple[LeaseToken, ...]:
        """Return the lease tokens that a commit of this call requires. Raises LeaseLost."""
        return () if self.lease is None else self.lease.tokens()

    def refused(self) -> MetastoreError:
        """Return the error for a commit that found another token."""
        assert self.lease is not None
        return self.lease.refused()


def clean_principal(principal: object) -> str:
    """Return ``principal`` as it is stored, or raise InvalidArgument."""
    text = clean_text(principal, "the principal")
    if not text or "\x00" in text:
        raise InvalidArgument("the principal must be a non-empty string without NUL")
    if len(text) > MAX_PRINCIPAL:
        raise InvalidArgument(f"the principal has {len(text)} code points; at most {MAX_PRINCIPAL} are allowed")
    return text


def clean_reason(reason: object) -> str:
    """Return ``reason`` as it is stored, or raise InvalidArgument."""
    text = clean_text(reason, "the reason")
    if not text.strip() or any(unicodedata.category(char) == "Cc" for char in text):
        raise InvalidArgument("the reason must be one line of text, without control characters")
    if len(text) > MAX_REASON:
        raise InvalidArgument(f"the reason has {len(text)} code points; at most {MAX_REASON} are allowed")
    return text


def committed(backend: Reads, entity: Entity) -> bool:
    """Whether an entity's state was committed in this database. Raises InvalidArgument for one of another database.

    False: its transaction was refused, has not ended, or has an unknown outcome; or the server was restarted since, and
    may have lost the commit. :func:`is_same` says whether the id is still valid.
    """
    origin, here = entity.origin, backend.origin
    if origin is here:
        return here.committed
    if origin is None:
        return False
    # read only if they differ: the database may have been restored since the store was opened
    if origin.database != here.database and origin.database != backend.identify().database:
        raise InvalidArgument(
            f"{entity.path} (id {entity.id}) is an entity of another database, or of this one before it was restored; "
            "load it from this store"
        )
    # a view of the past does not trust entities of the present
    return origin.committed and here.committed and origin.run == here.run


def is_same(entity: Entity, record: Record) -> bool:
    """Whether the record read by an entity's id is that entity: after a restore, another entity may have the id.

    Such another entity was created later than all database times in the loaded entity.
    """
    known, origin = entity.record, entity.origin
    if origin is None or record.chain[-1].kind != entity.kind:
        return record.chain[-1].kind == entity.kind
    latest = origin.written_at if origin.drafted else max(known.created_at, known.modified_at)
    return latest is None or record.created_at <= latest or record.created_at == known.created_at


def is_lost(entity: Entity, record: Record) -> bool:
    """Whether a restored backup lost the loaded version, and another version has its number now."""
    known, origin = entity.record, entity.origin
    if origin is None or origin.drafted or not origin.committed or record.version != known.version:
        return False
    return record.modified_at != known.modified_at


class View:
    """One attempt's reads: the backend, and whether the attempt may trust loaded entities."""

    def __init__(
        self,
        backend: Reads,
        trusting: bool,
        recent: Recent | None = None,
        *,
        asking: bool = False,
        naming: bool = False,
    ) -> None:
        self.backend = backend
        self.trusting = trusting
        self.naming = naming
        """The attempt may propose an update by name, so that the commit finds the entity."""
        self.guessed = False
        self.asking = asking
        """Only the right is checked: the attempt ignores its caller's expectations, but still proposes its commit."""
        self._recent = recent

    def trusts(self, entity: Entity) -> bool:
        """Whether the attempt may use a loaded entity instead of reading it. If so, the view notes the guess.

        Raises InvalidArgument for an entity of another database.
        """
        return committed(self.backend, entity) and entity.record.live and self.guess()

    def guess(self) -> bool:
        """Whether the attempt may use a guess instead of a read. If so, the view notes the guess."""
        self.guessed = self.guessed or self.trusting
        return self.trusting

    def newest(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the nodes of a scope and its ancestors as last seen, perhaps newer than those of a loaded entity."""
        return chain if self._recent is None else self._recent.chain(chain)

    def scope_version(self, entity_id: int) -> int | None:
        """Return the scope version of an entity, as it is now; None: the entity is gone."""
        (known,) = self.backend.by_id([entity_id])
        return None if known is None else known.record.chain[-1].scope_version

    def resolve(self, path: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads, and note the nodes of its parents."""
        (resolved,) = self.backend.resolve([path])
        if self._recent is not None:
            self._recent.note_parents(path, resolved.nodes)
        return resolved

    def saw(self, chain: tuple[Node, ...]) -> None:
        """Note the nodes that led to a scope."""
        if self._recent is not None:
            self._recent.note(chain)

    def follow(self, path: Lookup) -> tuple[Node, ...] | None:
        """Return the nodes to which a path last led, if the attempt may use them instead of a read; note the guess."""
        remembered = self._recent.at(path) if self.trusting and self._recent is not None else None
        self.guessed = self.guessed or remembered is not None
        return remembered

    def above(self, path: Lookup) -> tuple[Node, ...] | None:
        """Return the nodes above the entity at a path, as they were last seen; None: the entity must be read.

        Only for an update by name. Where names are folded, only a read shows the spelling of the entity's own name.
        """
        remembered = self._recent.at(parents_of(path)) if self.naming and self._recent is not None else None
        if not remembered or remembered[-1].fold:
            return None
        self.guessed = True
        return remembered

    def led(self, path: Lookup, chain: tuple[Node, ...]) -> None:
        """Note the nodes to which a path led."""
        if self._recent is not None:
            self._recent.note_path(path, chain)


def is_known(backend: Reads, request: Request[Any]) -> bool:
    """Whether a request may be announced before it reads: its loaded entity, if any, must be :func:`committed`.

    An intent addresses the entity by its id, and after a restored backup that may be another entity.
    """
    where = None if request.where is None else request.where()
    return not isinstance(where, Entity) or committed(backend, where)


Attempt = Callable[[View], "Proposal[T] | T"]


@value
class Merge:
    """Changes whose preconditions lie in the entity's own row, so that every process can apply them.

    ``names``: the path in the call; None: the entity with ``entity_id``, at any path.
    """

    kind: str
    names: tuple[str, ...] | None
    entity_id: int | None
    changes: tuple[EntityChange, ...]
    evidence: tuple[tuple[int, int], ...] = ()
    """The guards on which it rests: those of a user's right, or of an encrypted change's catalog.

    A helper applies it only under these guards.
    """
    settled: tuple[int, int] | None = None
    """The catalog whose settings declare which properties are secret, with its scope version.

    Under another one it is refused.
    """


@value
class Request(Generic[T]):
    """One call of a manager, before it is tried."""

    verb: str
    what: Callable[[], str]
    """Return the call in words, for messages and logs: its verb, kind and target."""
    attempt: Attempt[T]
    replay: Callable[[Sequence[Step]], T]
    """A function from the rows that the operation wrote to the result of the call."""
    arguments: Callable[[], Any]
    """The call's arguments as JSON values, which a repeat with the same operation id must have too."""
    merge: Merge | None = None
    """The changes to announce when it loses; None: it cannot be announced."""
    exclusive: bool = False
    """It bumps a scope version, and may mark the scope when it loses."""
    read_first: bool = False
    """It is announced only after an attempt that read.

    A loaded entity may be below another catalog now, which declares other properties secret.
    """
    id: UUID | None = None
    """The operation id, if the document must contain it; None: the operation draws one."""
    judge: Callable[[Sequence[Step], T], None] | None = None
    """Raise an error if the caller no longer sees the result of an earlier message; None: it sees everything."""
    where: Callable[[], Lookup | Entity | None] | None = None
    """Return its target; None: it creates an entity. A request with this function may be part of a batch."""
