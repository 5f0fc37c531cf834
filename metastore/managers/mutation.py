"""Run one mutation of one entity: try it, retry it, and repeat it under its operation id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, OwnedKind
from metastore.managers.target import Target, place_of, target_value
from metastore.operation.kept_result import entity_at
from metastore.operation.perform import perform
from metastore.operation.request import Attempt, Call, Merge, Request, committed
from metastore.operation.session import ManagerSession
from metastore.port.records import Lookup, Step

T = TypeVar("T")


def mutate(
    session: ManagerSession,
    kind: Kind | OwnedKind,
    call: Call,
    verb: str,
    target: Target,
    attempt: Attempt[T],
    replay: Callable[[Sequence[Step]], T],
    arguments: Callable[[], Any] = tuple,
    *,
    name: str | None = None,
    merge: Merge | None = None,
    exclusive: bool = False,
    read_first: bool = False,
    id: UUID | None = None,
    owned_rows: bool = False,
) -> T:
    """Run a mutation; return the result. Raises the errors of the attempt, and the error that ends the retries.

    It derives the call's description and its arguments from the kind and the target. ``arguments`` returns the
    arguments besides the target. ``name``: the name of the owned row that the call writes; then ``target`` is the row's
    owner. ``owned_rows``: besides the entity, the call writes rows that the entity owns. The other parameters are those
    of :class:`Request`.
    """

    def what() -> str:
        subject = target.path if isinstance(target, Entity) else repr(target)
        return f"{verb} {kind.name} {subject if name is None else repr(name)}"

    def all_arguments() -> Any:
        return [kind.name, target_value(target), *(() if name is None else (name,)), arguments()]

    if isinstance(target, Entity):
        committed(session.backend, target)  # checked before anything is announced or purged under the entity's id
    where: Callable[[], Lookup | Entity] | None = None
    # changes of owned rows, and exclusive changes of containers, never join a batch
    if isinstance(kind, Kind) and not owned_rows and not (kind.container and exclusive):
        where = partial(place_of, kind, target)
    request = Request(
        verb,
        what,
        attempt,
        replay,
        all_arguments,
        merge,
        exclusive=exclusive,
        read_first=read_first,
        id=id,
        where=where,
    )
    return perform(session, request, call)


def actor_of(session: ManagerSession, call: Call) -> str | None:
    """Return the principal of a call: its own, or the session's."""
    return session.principal if call.principal is None else call.principal


def first_entity(steps: Sequence[Step]) -> Entity:
    """Return the entity that an operation wrote first."""
    return cast(Entity, entity_at(steps[0]))
