"""The manager: all operations on the entities of one kind.

A manager checks the call and hands it on. ``reader.py`` and ``history.py`` read; ``create_call.py`` and ``bulk.py``
create. ``mutation.py`` runs a change of an entity, whose attempts are in ``attempts/alter.py`` and
``attempts/exclusive.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import Any, Generic, Unpack, cast

from metastore.arguments import boolean, integer, known_keywords, positive_seconds
from metastore.kinds.catalog import CATALOG
from metastore.kinds.change import EntityChange, meant
from metastore.kinds.entity import Entity, Version
from metastore.kinds.kind import Kind
from metastore.managers import bulk
from metastore.managers import history as histories
from metastore.managers.attempts import exclusive
from metastore.managers.attempts.alter import alter, merge_of
from metastore.managers.attempts.create import IfExists
from metastore.managers.create_call import create_entity
from metastore.managers.drops.announce import Begin
from metastore.managers.drops.pending import PendingDrop, begin_drop
from metastore.managers.drops.row import check_no_pending
from metastore.managers.mutation import actor_of, first_entity, mutate
from metastore.managers.options import (
    BULK_OPTIONS,
    BulkOptions,
    CallOptions,
    CreateOptions,
    call_from,
    call_of,
    shows_options,
)
from metastore.managers.pages.page import Page
from metastore.managers.purge import delete_trees, left_to_gc
from metastore.managers.reader import E, Reader
from metastore.managers.secrets.sealing import declared, sealed_call, sets_properties, settles
from metastore.managers.target import Target
from metastore.names import Path, parse_path
from metastore.operation.request import Attempt, Call, Merge
from metastore.operation.seals import Seal
from metastore.operation.session import ManagerSession
from metastore.operation.timed import timed
from metastore.port.conditions import DROPPED, LIVE
from metastore.port.unreadable import Unreadable


class Manager(Generic[E]):
    """The manager of one kind."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        self._session = session
        self._kind = kind
        self._reader = Reader[E](session, kind)

    def _own(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the kind among the arguments of a ``create``."""
        return {name: given[name] for name, field in self._kind.entity.doc_fields.items() if field.given}

    def _create(self, path: Path, fields: Mapping[str, Any], options: CreateOptions) -> E:
        return cast(E, create_entity(self._session, self._kind, path, fields, options))

    @shows_options(BulkOptions)
    def create_many(
        self,
        parent: Target | None,
        rows: Iterable[Mapping[str, Any]],
        *,
        if_exists: IfExists = "error",
        **options: Unpack[BulkOptions],
    ) -> int:
        """Create many entities below one parent; return how many were written.

        ``rows`` have ``name`` and the fields of ``create``. They are committed in chunks: after
        an error, run it again with ``if_exists="return"``.
        """
        known_keywords(options, BULK_OPTIONS)
        return bulk.create_many(self._session, self._kind, parent, rows, if_exists, call_from(options))

    def load(self, target: Target, *, version: int | None = None) -> E:
        """Return the entity as it is now, or as it was at ``version``. Raises EntityNotFound."""
        cache = self._session.cache
        if cache is not None and version is None:
            kept = cache.held(self._kind.name, target if target.__class__ is str else self._reader.kept_as(target))
            if kept is not None and kept.__class__ is not tuple:
                return cast(E, kept)
        return timed(self._session, "load", self._reader.load, target, version)

    def load_many(self, paths: Iterable[Path]) -> list[E | None]:
        """Return the entity at each path (None: no entity), in one round trip."""
        return timed(self._session, "load_many", self._reader.load_many, paths)

    def exists(self, path: Path) -> bool:
        """Whether a live entity of this kind is at ``path``."""
        cache = self._session.cache
        if cache is not None:
            kept = cache.held(self._kind.name, path if path.__class__ is str else parse_path(path))
            if kept is not None:
                return kept.__class__ is not tuple
        return timed(self._session, "exists", self._reader.exists, path)

    def list(
        self, parent: Target | None = None, *, page_size: int = 1000, unreadable: Unreadable | None = None
    ) -> Iterator[E]:
        """Yield the direct children of this kind, by name. Raises EntityNotFound for a missing parent.

        With ``unreadable``, damaged rows are left out, and ``unreadable`` is called with an error for each. Without it,
        reading a damaged field raises UnreadableRow.
        """
        return self._reader.children(parent, LIVE, page_size, unreadable)

    def dropped(
        self, parent: Target | None = None, *, page_size: int = 1000, unreadable: Unreadable | None = None
    ) -> Iterator[E]:
        """Yield the dropped children that can be restored, ordered by name, then oldest first. See ``list``."""
        return self._reader.children(parent, DROPPED, page_size, unreadable)

    def names(self, parent: Target | None = None, *, page_size: int = 1000) -> Iterator[str]:
        """Yield the children's names, ordered by code point. Raises EntityNotFound for a missing parent."""
        return self._reader.names(parent, page_size)

    def page(
        self, parent: Target | None = None, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[E]:
        """Return one page of the direct children, by name; ``token`` is the ``next_token`` of the page before.

        ``prefix`` has no wildcards. Raises InvalidArgument for a token that is damaged or of another listing.
        """
        return self._reader.children_page(parent, LIVE, size, token, prefix)

    def dropped_page(
        self, parent: Target | None = None, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[E]:
        """Return one page of the children that were dropped, ordered by name, then oldest first. See :meth:`page`."""
        return self._reader.children_page(parent, DROPPED, size, token, prefix)

    def names_page(
        self, parent: Target | None = None, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[str]:
        """Return one page of the children's names, ordered by code point. See :meth:`page`."""
        return self._reader.names_page(parent, size, token, prefix)

    def history(self, target: Target, *, unreadable: Unreadable | None = None) -> Iterator[Version]:
        """Yield the entity's history, oldest first. A loaded entity may be a dropped one.

        A damaged row raises UnreadableRow. With ``unreadable`` it is left out, and ``unreadable`` gets the error.
        """
        return histories.history(self._session, self._kind, target, unreadable)

    def history_page(
        self, target: Target, *, size: int = 100, token: str | None = None, after: int = 0
    ) -> Page[Version]:
        """Return one page of the entity's history, oldest first. See :meth:`page` and :meth:`history`.

        Without a ``token``, the page begins after the version ``after``.
        """
        return histories.history_page(self._session, self._kind, target, size, token, after)

    @shows_options(CallOptions)
    def alter(
        self,
        target: Target,
        *changes: EntityChange,
        expected_version: int | None = None,
        **options: Unpack[CallOptions],
    ) -> E:
        """Apply ``changes``, merged with concurrent changes by others; return the entity.

        Nothing is written if the entity stays equal. Raises EntityNotFound; VersionConflict if ``expected_version`` or
        a change's own expectation fails; and the errors of the changes.
        """
        self._kind.check_changes(changes)
        call = call_of(options)
        if not sets_properties(changes):
            return self._alter(target, changes, expected_version, call, None)
        return sealed_call(
            self._session,
            self._kind,
            target,
            options,
            lambda seal: self._alter(target, changes, expected_version, call, seal),
        )

    def _alter(
        self,
        target: Target,
        changes: tuple[EntityChange, ...],
        expected_version: int | None,
        call: Call,
        seal: Seal | None,
    ) -> E:
        given = changes
        if seal is not None:
            if self._kind is CATALOG:
                seal, given = seal.redeclared(changes)
            changes = seal.changes(given)
        encrypts = not all(map(is_, given, changes))
        # a repeat under the caller's id must have equal arguments, but a new data key would give other ciphertexts
        repeatable = not encrypts or call.operation_id is None
        mergeable = repeatable and expected_version is None and not self._session.in_transaction
        redeclares = self._kind is CATALOG and settles(changes)
        settled = None if seal is None else seal.settled
        merge = merge_of(self._kind, target, changes, settled) if mergeable and not redeclares else None
        secret: Merge | None = None
        # the ciphertexts are bound to the entity's id, so only an attempt, which reads the entity, can make them
        if encrypts and seal is not None and merge is not None:
            secret, merge = seal.announced(merge), None
        actor = actor_of(self._session, call)
        altered = mutate(
            self._session,
            self._kind,
            call,
            "alter",
            target,
            alter(self._kind, target, changes, expected_version, merge, actor, seal, secret),
            first_entity,
            lambda: [meant(changes), expected_version],
            merge=merge,
            read_first=seal is not None,
        )
        if redeclares:
            declared(self._session)
        return cast(E, altered)

    @shows_options(CallOptions)
    def rename(
        self, target: Target, to: Path, *, expected_version: int | None = None, **options: Unpack[CallOptions]
    ) -> E:
        """Give the entity a new name, or with a full path a new place; return it.

        Raises EntityAlreadyExists if the name is taken, InvalidArgument for a move below itself.
        """
        call = call_of(options)
        parse_path(to)
        actor = actor_of(self._session, call)
        return self._changed(
            "rename",
            target,
            lambda view: exclusive.rename(view, self._kind, target, to, expected_version, actor),
            call,
            lambda: [list(parse_path(to)), expected_version],
        )

    @shows_options(CallOptions)
    def drop(
        self,
        target: Target,
        *,
        cascade: bool = False,
        expected_version: int | None = None,
        **options: Unpack[CallOptions],
    ) -> bool:
        """Drop the entity; return False if it does not exist. Raises NotEmpty unless ``cascade`` or it is empty.

        It can be restored until gc collects it.
        """
        call = call_of(options)
        boolean(cascade, "cascade")
        actor = actor_of(self._session, call)
        return mutate(
            self._session,
            self._kind,
            call,
            "drop",
            target,
            lambda view: exclusive.drop(view, self._kind, target, cascade, expected_version, actor),
            lambda _: True,
            lambda: [cascade, expected_version],
            exclusive=True,
        )

    @shows_options(CallOptions)
    def begin_drop(
        self, target: Target, *, column: Path | None = None, ttl: float = 60.0, **options: Unpack[CallOptions]
    ) -> PendingDrop:
        """Announce the drop of an entity with all below it, or of one ``column``, whose data lies outside of the store.

        From now on it is hidden: loads and writes of it, and of all below it, raise DropPending, and its name stays
        taken. Destroy the data between ``started()`` and ``finish()`` of the returned drop; before ``started()``,
        ``roll_back()`` restores everything. If no step follows for ``ttl`` seconds, another process may take it over:
        see ``store.drops``. Raises EntityNotFound, DropPending; InvalidArgument for a nested column, in a transaction.
        """
        begin = Begin(self._session.clock.operation_id(), positive_seconds(ttl, "a ttl"), column)
        return begin_drop(self._session, self._kind, target, begin, call_of(options))

    @shows_options(CallOptions)
    def restore(
        self, path: Path, *, id: int | None = None, to: Path | None = None, **options: Unpack[CallOptions]
    ) -> E:
        """Restore the entity that was dropped last at ``path``, or the one with ``id``, there or at ``to``.

        Raises EntityNotFound, or EntityAlreadyExists if the name is taken.
        """
        if id is not None:
            id = integer(id, "an id")
        call = call_of(options)
        actor = actor_of(self._session, call)
        return self._changed(
            "restore",
            path,
            lambda view: exclusive.restore(view, self._kind, path, id, to, actor),
            call,
            lambda: [id, None if to is None else list(parse_path(to))],
        )

    @shows_options(CallOptions)
    def purge(self, target: Target, *, expected_version: int | None = None, **options: Unpack[CallOptions]) -> bool:
        """Remove an entity for good: a live and empty one, or a dropped one that is given as an Entity.

        Return False if it does not exist, or was dropped with an entity above it. The history goes with the entity; its
        entries in the feed stay for the retention.
        """
        call = call_of(options)
        actor = actor_of(self._session, call)
        if not self._session.in_transaction:
            check_no_pending(self._session.of_store().backend, target)
        entity_id = mutate(
            self._session,
            self._kind,
            call,
            "purge",
            target,
            lambda view: exclusive.purge(view, self._kind, target, expected_version, actor),
            lambda steps: steps[0].entity_id or 0,
            lambda: () if expected_version is None else (expected_version,),
            exclusive=True,
        )
        if entity_id and not self._session.in_transaction:  # in a transaction, gc deletes it later
            with left_to_gc():
                delete_trees(self._session.of_store().backend, [entity_id])
        return bool(entity_id)

    def _changed(
        self,
        verb: str,
        target: Target,
        attempt: Attempt[Entity],
        call: Call,
        arguments: Callable[[], Any] = tuple,
    ) -> E:
        """Run an exclusive mutation; return the entity."""
        session, kind = self._session, self._kind
        return cast(E, mutate(session, kind, call, verb, target, attempt, first_entity, arguments, exclusive=True))
