"""A view of a read replica: the managers of all kinds, on a state that may be old and says how old."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from metastore.kinds.entity import Entity
from metastore.managers.all import Managers
from metastore.managers.find import find
from metastore.managers.search import wanted
from metastore.managers.target import Target
from metastore.operation.session import ManagerSession, Session
from metastore.port.backend import Backend
from metastore.replicas.reads import READ_ONLY, ReplicaReads

__all__ = ["Replica"]


class Replica(Managers):
    """A read replica's view: ``store.replica().tables.load(path)``. It is read-only.

    Each read shows everything up to ``position``, and perhaps more. A later read shows at least what an earlier one
    showed, as long as the replica runs. If it fails, the reads go to another one that shows ``position``, else to the
    primary. So they may show less than before, but still everything up to ``position``. A method that writes raises
    InvalidArgument.
    """

    def __init__(self, session: Session, reads: ReplicaReads) -> None:
        backend = cast(Backend, reads)
        bound = ManagerSession(backend, session.clock, session.policy, session.principal, outer=session)
        bound.read_only = READ_ONLY
        super().__init__(bound)
        self._reads = reads

    @property
    def position(self) -> str:
        """How old it may be: each read shows all changes up to this position of the feed."""
        return self._reads.position

    @property
    def from_primary(self) -> bool:
        """Whether it reads from the primary, because no replica answers or has come far enough."""
        return self._reads.from_primary

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
        """Yield the entities that :meth:`metastore.Store.find` yields, as the replica shows them.

        Raises the same errors.
        """
        session = cast(Session, self._session)
        looked_for = wanted(session.backend, under, kind, name, properties, recursive, text)
        return find(session, looked_for, under.path if isinstance(under, Entity) else str(under), timeout)

    def __repr__(self) -> str:
        return f"<Replica {self.position}, from_primary={self.from_primary}>"
