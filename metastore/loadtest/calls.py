"""The calls of one client: the public interface, with a record of each call. No error of the store ends the client.

Each call returns the store's result, or None if the store raised an error; :attr:`Calls.last` is its record. The record
has a path if the call was made by path, not if it was made by entity.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import UUID

from metastore.checker.recorder import Recorder
from metastore.checker.records import Lost, Operation, Seen
from metastore.errors import BackendUnavailable, EntityNotFound, MetastoreError, OutcomeUnknown, VersionConflict
from metastore.kinds.change import EntityChange
from metastore.kinds.entity import Entity
from metastore.loadtest.outcomes import outcome_of, seen_by
from metastore.names import parse_path
from metastore.retry.policy import Attempt
from metastore.store import Store
from metastore.transaction.transaction import Transaction

__all__ = ["Calls", "Within"]

T = TypeVar("T")
_READS: Final = ("load", "exists", "list")


class Within:
    """A transaction that records its reads. It must not read entities that it has written."""

    def __init__(self, tx: Transaction, operation: Operation) -> None:
        self._tx, self._operation = tx, operation
        self._reads = operation.reads
        self._reads.clear()  # drop the reads of the run before
        operation.outcome = "nothing"

    def load(self, path: str, kind: str = "table") -> Any:
        """Load an entity."""
        entity = self._noted("load", path, kind, lambda: self._tx.manager(kind).load(path))
        self._reads.append(Seen(path, True, entity.id, entity.version, kind))
        return entity

    def alter(self, target: str | Entity, *changes: EntityChange, kind: str = "table") -> Any:
        """Alter an entity."""
        return self._wrote(self._tx.manager(kind).alter(target, *changes))

    def create(self, path: str, kind: str = "table", **fields: Any) -> Any:
        """Create an entity."""
        return self._wrote(self._noted("create", path, kind, lambda: self._tx.manager(kind).create(path, **fields)))

    def drop(self, path: str, kind: str = "table") -> bool:
        """Drop an entity that must be empty. Return False if there was none."""
        dropped = self._noted("drop", path, kind, lambda: self._tx.manager(kind).drop(path))
        if dropped:
            self._operation.outcome = "applied"
        else:
            self._reads.append(Seen(path, False, kind=kind))
        return dropped

    def restore(self, path: str, kind: str = "table") -> Any:
        """Restore the entity that was dropped last under a path."""
        return self._wrote(self._noted("restore", path, kind, lambda: self._tx.manager(kind).restore(path)))

    def _noted(self, action: str, path: str, kind: str, call: Callable[[], T]) -> T:
        """Run one call. An error, which the block may catch, is recorded as a read of the transaction."""
        try:
            return call()
        except MetastoreError as error:
            self._reads.extend(seen_by(error, action, path, kind))
            raise

    def _wrote(self, written: Entity) -> Entity:
        """Record that the transaction writes, if the change had an effect."""
        if written.modified_by == self._operation.principal:
            self._operation.outcome = "applied"
        return written


class Calls:
    """The recorded calls of one client; for one thread."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store, self._recorder = store, recorder
        self.last: Operation = Operation("", 0, "", None, None, None, "", 0, 0.0)
        self.values: dict[str, float] = {}
        """Numbers that are recorded with the next operations."""

    @property
    def away(self) -> bool:
        """Whether the last call found no database."""
        return self.last.error in (BackendUnavailable.__name__, OutcomeUnknown.__name__)

    @property
    def missed(self) -> bool:
        """Whether the last call did not find the entity."""
        return self.last.error == EntityNotFound.__name__

    def hook(self, attempt: Attempt) -> None:
        """Record an attempt of the current call."""
        operation = self.last
        if operation.action in _READS:
            return
        if attempt.operation_id is not None and operation.action not in ("transaction", "freeze"):
            operation.operation_id = str(attempt.operation_id)
        if attempt.cause is not None:
            operation.conflicts.append(Lost(attempt.cause, attempt.entity_id, attempt.expected))
        operation.helped = attempt.helped

    # --- reads

    def load(self, path: str, kind: str = "table") -> Any:
        """Load an entity; None if it does not exist."""

        def call(operation: Operation) -> Any:
            entity = self._store.manager(kind).load(path)
            operation.entity_id, operation.version_after = entity.id, entity.version
            operation.reads = [Seen(path, True, entity.id, entity.version)]
            return entity

        return self._call("load", kind, path, call)

    def exists(self, path: str, kind: str = "table") -> bool | None:
        """Return whether an entity exists."""

        def call(operation: Operation) -> bool:
            exists = self._store.manager(kind).exists(path)
            operation.reads = [Seen(path, exists)]
            return exists

        return self._call("exists", kind, path, call)

    def list(self, parent: str, kind: str = "table") -> Any:
        """List the children of ``parent``."""

        def call(operation: Operation) -> Any:
            entities = [*self._store.manager(kind).list(parent)]
            operation.reads = [Seen(one.path, True, one.id, one.version) for one in entities]
            return entities

        return self._call("list", kind, parent, call)

    # --- writes

    def create(self, path: str, kind: str = "table", *, operation_id: UUID | None = None, **fields: Any) -> Any:
        """Create an entity, under the caller's operation id if one is given."""

        def call(operation: Operation) -> Any:
            operation.operation_id = None if operation_id is None else str(operation_id)
            created = self._store.manager(kind).create(
                path, principal=operation.principal, operation_id=operation_id, **fields
            )
            _note(operation, created)
            return created

        return self._call("create", kind, path, call)

    def alter(self, target: str | Entity, *changes: EntityChange, kind: str = "table") -> Any:
        """Alter an entity, by path or by a loaded entity."""

        def call(operation: Operation) -> Any:
            operation.entity_id = None if isinstance(target, str) else target.id
            altered = self._store.manager(kind).alter(target, *changes, principal=operation.principal)
            _note(operation, altered)
            return altered

        return self._call("alter", kind, target if isinstance(target, str) else None, call)

    def rename(self, path: str, to: str, kind: str = "table") -> Any:
        """Rename an entity to the full path ``to``. If the parent differs, this is a move."""

        def call(operation: Operation) -> Any:
            renamed = self._store.manager(kind).rename(path, to, principal=operation.principal)
            _note(operation, renamed)
            return renamed

        action = "rename" if parse_path(path)[:-1] == parse_path(to)[:-1] else "move"
        return self._call(action, kind, path, call, to=to)

    def drop(self, path: str, kind: str = "table", *, cascade: bool = False) -> bool | None:
        """Drop an entity. Return False if there was none."""

        def call(operation: Operation) -> bool:
            dropped = self._store.manager(kind).drop(path, cascade=cascade, principal=operation.principal)
            operation.outcome = "applied" if dropped else "nothing"
            if not dropped:
                operation.reads = [Seen(path, False)]
            return dropped

        return self._call("drop_cascade" if cascade else "drop", kind, path, call)

    def restore(self, path: str, kind: str = "table") -> Any:
        """Restore the entity that was dropped last under a path."""

        def call(operation: Operation) -> Any:
            found = self._store.manager(kind).restore(path, principal=operation.principal)
            _note(operation, found)
            return found

        return self._call("restore", kind, path, call)

    def transaction(self, path: str, fn: Callable[[Within], T]) -> T | None:
        """Run ``fn`` as one commit. ``path`` only shows people the place of the transaction."""

        def call(operation: Operation) -> T:
            return self._store.run(lambda tx: fn(Within(tx, operation)), principal=operation.principal)

        return self._call("transaction", None, path, call)

    def freeze(self, path: str, fn: Callable[[Within], T], *, ttl: float, timeout: float) -> T | None:
        """Run ``fn`` while the schema ``path`` is frozen."""

        def call(operation: Operation) -> T:
            freeze = self._store.schemas.exclusive(path, ttl=ttl, timeout=timeout, principal=operation.principal)
            with freeze as tx:
                operation.held_from = time.monotonic_ns()
                result = fn(Within(tx, operation))
                operation.held_to = time.monotonic_ns()
                return result

        return self._call("freeze", "schema", path, call)

    # --- the record

    def _call(
        self, action: str, kind: str | None, path: str | None, call: Callable[[Operation], T], *, to: str | None = None
    ) -> T | None:
        operation = self.last = self._recorder.begin(action, kind, path, to=to)
        operation.values = self.values
        if action in _READS:
            operation.outcome = "read"
        try:
            result = call(operation)
        except MetastoreError as error:
            self._failed(operation, error)
            return None
        except BaseException as error:  # a bug of ours, or a signal: the outcome is unknown
            self._recorder.end(operation, "unknown", error)
            raise
        operation.attempts = len(operation.conflicts) + 1
        self._recorder.end(operation, operation.outcome)
        return result

    def _failed(self, operation: Operation, error: MetastoreError) -> None:
        outcome = outcome_of(error)
        if isinstance(error, VersionConflict):
            operation.conflicts.append(Lost("read"))
        operation.attempts = len(operation.conflicts) + (outcome == "failed")
        operation.attempts = max(operation.attempts, 1)
        operation.helped = None
        if operation.action in ("load", "exists"):
            operation.reads = [Seen(operation.path, False)] if isinstance(error, EntityNotFound) else []
        elif outcome != "failed" or operation.action == "freeze":  # only the commit of a freeze validates its reads
            operation.reads = []
        elif operation.path is not None and operation.action not in ("transaction", "freeze"):
            operation.reads = seen_by(error, operation.action, operation.path)
        self._recorder.end(operation, outcome, error)


def _note(operation: Operation, entity: Entity) -> None:
    """Record the entity that a mutation returned. The operation wrote if the entity was last modified by it."""
    operation.entity_id, operation.version_after = entity.id, entity.version
    if entity.modified_by == operation.principal:
        operation.outcome = "applied"
        operation.version_before = entity.version - 1 or None
    else:
        operation.outcome, operation.version_before = "nothing", entity.version
        operation.reads = [] if operation.path is None else [Seen(entity.path, True, entity.id, entity.version)]
