"""The ground of the contract's tests: a small tree, commits made by hand, and a look at every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from metastore import Store
from metastore.backends.sql.tables import metadata
from metastore.clock import SYSTEM
from metastore.kinds.entity import Entity, Owned
from metastore.port.backend import Backend
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.conditions import ROOT_ID, Guard
from metastore.port.intents import Help
from metastore.port.writes import Delete, Event, Insert, Place, Put, Update, Write
from tests.combine.gate import full_operations

DOC = '{"comment":null,"properties":{}}'
NEW_DOC = '{"comment":"new","properties":{}}'
ALTERED = Event("schema", "alter", "a", "a")

Dump = dict[str, list[tuple[Any, ...]]]


def dump(backend: Backend) -> Dump:
    """Return every row of every table, the same for all backends.

    Without the generation of an operation: it says why a commit was let in on PostgreSQL, and nothing of what it did.
    """
    with backend.snapshot() as snapshot:
        return {
            name: [
                tuple(map(_plain, columns, row))
                for row in snapshot.rows(name, columns, [c.name for c in table.primary_key])
            ]
            for name, table in metadata.tables.items()
            if name != "info" and (columns := [c.name for c in table.columns if c.name != "generation"])
        }


def _plain(column: str, value: Any) -> Any:
    if column in ("fold", "in_use") and value is not None:
        return bool(value)
    return str(value) if isinstance(value, UUID) else value


def guards_of(*entities: Entity) -> tuple[Guard, ...]:
    """Return the guards of everything on the paths of ``entities``, these included."""
    return tuple({n.id: Guard(n.id, n.scope_version) for e in entities for n in e.record.chain}.values())


def commit_of(*writes: Write, **fields: Any) -> Commit:
    """Return a commit with an operation id of its own, guarded by the root."""
    defaults: dict[str, Any] = {
        "operation_id": SYSTEM.operation_id(),
        "principal": "hand",
        "guards": (Guard(ROOT_ID, 1),),
    }
    return Commit(writes=writes, **defaults | fields)


def insert(parent: Entity, name: str, row_id: int | None = None) -> Insert:
    """Return a new schema below ``parent``."""
    event = Event("schema", "create", None, f"{parent.path}.{name}")
    return Insert(parent.id, "schema", "schema", name, name, False, DOC, event, row_id)


def update(entity: Entity, **fields: Any) -> Update:
    """Return an update of ``entity`` as it is in hand."""
    defaults: dict[str, Any] = {"id": entity.id, "version": entity.version, "event": ALTERED}
    return Update(**defaults | fields)


def exclusive(entity: Entity, **fields: Any) -> Update:
    """Return an exclusive update of ``entity`` as it is in hand."""
    return update(entity, **{"scope_version": entity.scope_version} | fields)


def put(owner: Entity, name: str, version: int = 0, doc: str = DOC) -> Put:
    """Return a partition of ``owner`` to write."""
    return Put(owner.id, "partition", name, version, doc, Event("partition", "create", None, f"{owner.path}.{name}"))


def delete(owner: Entity, row: Owned) -> Delete:
    """Return the deletion of a partition."""
    return Delete(owner.id, "partition", row.name, row.version, Event("partition", "drop", row.name, None))


@dataclass(frozen=True)
class Ground:
    """A metalake, a catalog, schemas ``one`` (with the table, partitioned) and ``two`` (empty), ``old`` (dropped)."""

    store: Store
    backend: Backend
    lake: Entity
    catalog: Entity
    one: Entity
    two: Entity
    table: Entity
    part: Owned
    old: Entity

    def send(self, *writes: Write, **fields: Any) -> CommitOutcome:
        """Apply a commit made by hand."""
        return self.backend.commit(commit_of(*writes, **fields))

    def dump(self) -> Dump:
        """Return every row."""
        return dump(self.backend)


def behind(store: Store) -> Backend:
    """Return the database's own backend, which the one of an async store stands before."""
    backend = store._session.backend
    return getattr(backend, "_port", backend)


def prepare(store: Store) -> Ground:
    """Make the tree."""
    lake = store.metalakes.create("m")
    catalog = store.catalogs.create("m.c", type="relational")
    one, two, old = (store.schemas.create(f"m.c.{name}") for name in ("one", "two", "old"))
    table = store.tables.create("m.c.one.t")
    part = store.partitions.create(table, "p", values={})
    assert store.schemas.drop(old)
    return Ground(store, behind(store), lake, catalog, one, two, table, part, old)


class _Interrupted:
    """A backend that lets others go first: before each commit, helping ones too, it calls the next of ``actions``."""

    def __init__(self, backend: Backend, actions: list[Callable[[], object]]) -> None:
        self._backend = backend
        self._actions = actions

    def commit(self, commit: Commit) -> CommitOutcome:
        self._let_go_first()
        return self._backend.commit(commit)

    def help(self, help: Help) -> CommitOutcome:
        self._let_go_first()
        return self._backend.help(help)

    def _let_go_first(self) -> None:
        if self._actions:
            self._actions.pop(0)()

    def in_one_go(self, work: Callable[[], Any], *, for_many: bool = False) -> Any:
        """Work in the caller's task: what the test does in between may call the store, whose only thread is free."""
        return work()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@contextmanager
def interrupted(store: Store, *actions: Callable[[], object]) -> Iterator[None]:
    """Call one of ``actions`` between the read and the commit of each of the next attempts."""
    session = store._session
    backend, access = session.backend, session.access

    def undisturbed(action: Callable[[], object]) -> Callable[[], object]:
        def act() -> object:
            session.backend, ours = backend, session.backend
            try:
                return action()
            finally:
                session.backend = ours

        return act

    left = [undisturbed(a) for a in actions]
    with ExitStack() as restored:
        _put(restored, session, _Interrupted(backend, left))
        if access is not None:  # through it the user's transactions commit
            _put(restored, access, _Interrupted(access.backend, left))
        restored.enter_context(full_operations(store))
        yield


def _put(restored: ExitStack, holder: Any, backend: _Interrupted) -> None:
    restored.callback(setattr, holder, "backend", holder.backend)
    holder.backend = backend


def spare(ground: Ground) -> Write:
    """Return a write that nothing speaks against, so that there is something to leave undone."""
    return insert(ground.two, "spare")


def renamed(ground: Ground, name: str) -> Update:
    """Return the rename of the schema ``two``."""
    return exclusive(ground.two, place=Place(ground.catalog.id, name, name, fold=False))
