"""One mutation of one entity: a manager hands it over to be tried, retried and repeated under its operation id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, OwnedKind
from metastore.managers.target import Target, place_of, target_value
from metastore.operation.kept_result import entity_at
from metastore.operation.perform import perform
from metastore.operation.request import Attempt, Call, Merge, Request, committed
from metastore.operation.session import ManagerSession
from metastore.port.records import Lookup, Step
from metastore.port.value import value

__all__ = ["Mutation", "actor_of", "first_entity"]

T = TypeVar("T")


@value
class Mutation(Generic[T]):
    """A mutation, ready to run. It makes the call's words and its arguments from the kind and the target."""

    verb: str
    target: Target
    attempt: Attempt[T]
    replay: Callable[[Sequence[Step]], T]
    """From the rows that an earlier call under the same operation id wrote to the result."""
    arguments: Callable[[], Any] = tuple
    """The arguments besides the target, as JSON values: a repeat under the same operation id must have the same."""
    name: str | None = None
    """The name of the owned row, if the mutation writes one; ``target`` is then its owner."""
    merge: Merge | None = None
    exclusive: bool = True
    """It bumps the entity's scope version."""
    read_first: bool = False
    """It is announced only after an attempt that read."""
    id: UUID | None = None
    """The operation id, if the document must contain it; None: the operation draws one."""
    owned_rows: bool = False
    """It writes rows that the entity owns, beside the entity."""

    def run(self, session: ManagerSession, kind: Kind | OwnedKind, call: Call) -> T:
        """Return the result. Raises what the attempt raises, and what ends the retries."""
        target = self.target

        def what() -> str:
            subject = target.path if isinstance(target, Entity) else repr(target)
            return f"{self.verb} {kind.name} {subject if self.name is None else repr(self.name)}"

        def all_arguments() -> Any:
            return [kind.name, target_value(target), *(() if self.name is None else (self.name,)), self.arguments()]

        if isinstance(target, Entity):
            committed(session.backend, target)  # checked before anything is announced or purged under its id
        request = Request(
            verb=self.verb,
            what=what,
            attempt=self.attempt,
            replay=self.replay,
            arguments=all_arguments,
            merge=self.merge,
            exclusive=self.exclusive,
            read_first=self.read_first,
            id=self.id,
            where=self._where(kind),
        )
        return perform(session, request, call)

    def _where(self, kind: Kind | OwnedKind) -> Callable[[], Lookup | Entity] | None:
        """Return how to find what it changes; None: it does not travel with other requests."""
        if isinstance(kind, OwnedKind) or self.owned_rows or (kind.container and self.exclusive):
            return None
        return lambda: place_of(kind, self.target)


def actor_of(session: ManagerSession, call: Call) -> str | None:
    """Return the principal of a call: its own, or the session's."""
    return session.principal if call.principal is None else call.principal


def first_entity(steps: Sequence[Step]) -> Entity:
    """Return the entity that an operation wrote first."""
    return cast(Entity, entity_at(steps[0]))
