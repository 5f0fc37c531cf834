"""One mutation of one entity: a manager hands it over to be tried, retried and repeated under its operation id."""

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

__all__ = ["actor_of", "first_entity", "mutate"]

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
    exclusive: bool = True,
    read_first: bool = False,
    id: UUID | None = None,
    owned_rows: bool = False,
) -> T:
    """Run a mutation; return the result. Raises what the attempt raises, and what ends the retries.

    It makes the call's words and its arguments from the kind and the target. ``arguments`` returns those besides the
    target. ``name``: that of the owned row, if one is written; ``target`` is then its owner. ``owned_rows``: it writes
    rows that the entity owns, beside the entity. The others are those of :class:`Request`.
    """

    def what() -> str:
        subject = target.path if isinstance(target, Entity) else repr(target)
        return f"{verb} {kind.name} {subject if name is None else repr(name)}"

    def all_arguments() -> Any:
        return [kind.name, target_value(target), *(() if name is None else (name,)), arguments()]

    if isinstance(target, Entity):
        committed(session.backend, target)  # checked before anything is announced or purged under its id
    where: Callable[[], Lookup | Entity] | None = None
    # owned rows, and what many others may be below, do not travel with other requests
    if isinstance(kind, Kind) and not owned_rows and not (kind.container and exclusive):
        where = partial(place_of, kind, target)
    request = Request(verb, what, attempt, replay, all_arguments, merge, exclusive, read_first, id, where=where)
    return perform(session, request, call)


def actor_of(session: ManagerSession, call: Call) -> str | None:
    """Return the principal of a call: its own, or the session's."""
    return session.principal if call.principal is None else call.principal


def first_entity(steps: Sequence[Step]) -> Entity:
    """Return the entity that an operation wrote first."""
    return cast(Entity, entity_at(steps[0]))
