"""The manager: everything that can be done with the entities of one kind.

Thin: it checks the call, and hands an attempt to the session, which retries it. The attempts
themselves are in ``creating``, ``moving`` and ``listing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, cast

from metastore.arguments import integer, items, known_keywords, positive_integer, shown
from metastore.errors import EntityNotFound, InvalidArgument, OutcomeUnknown
from metastore.kinds.change import EntityChange, encode
from metastore.kinds.entity import Entity, Version
from metastore.kinds.kind import dump, dump_changes
from metastore.kinds.registry import KINDS
from metastore.managers import exclusive as moving
from metastore.managers.create import Chunk, IfExists, Wish, check_if_exists, chunks, create, create_chunk, rewrite
from metastore.managers.history import steps_of, version_of
from metastore.managers.listing import pages, parent_nodes
from metastore.managers.options import (
    BULK_OPTIONS,
    CREATE_OPTIONS,
    BulkOptions,
    CallOptions,
    CreateOptions,
    call_from,
    call_of,
    shows_options,
)
from metastore.managers.paged import E, Paged
from metastore.managers.purge import delete_tree
from metastore.managers.target import Target, find, names_of
from metastore.managers.target import shown as shown_target
from metastore.names import Path, clean_name, format_path, parse_path
from metastore.operation.guards import lookup
from metastore.operation.merge import altered
from metastore.operation.operation import is_new, perform
from metastore.operation.outcome import entity_at
from metastore.operation.request import Attempt, Call, Merge, Proposal, Request, View, committed
from metastore.port.commit import DROPPED, LIVE
from metastore.port.records import Child, Node, Record, RowPage, Step
from metastore.port.unreadable import Unreadable, check_unreadable, kept

__all__ = ["E", "Manager"]

T = TypeVar("T")


class Manager(Paged[E]):
    """The manager of one kind."""

    # --- making

    def _own(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the kind among the arguments of a ``create``."""
        return {name: given[name] for name, field in self._kind.entity.doc_fields.items() if field.given}

    def _create(self, path: Path, fields: Mapping[str, Any], options: CreateOptions) -> E:
        known_keywords(options, CREATE_OPTIONS)
        if_exists, parent = options.get("if_exists", "error"), options.get("parent")
        check_if_exists(if_exists)
        properties = options.get("properties", MappingProxyType({}))
        wish = Wish(self._kind, options.get("comment"), properties, self._kind.take(fields))
        call = call_from(options)
        doc, actor = wish.document(), self._actor(call)

        def attempt(view: View) -> Proposal[Entity] | Entity:
            return create(view, wish, doc, path, parent, if_exists, actor)

        request = Request[Entity](
            verb="create",
            what=lambda: f"create {self._kind.name} {path!r}",
            attempt=attempt,
            replay=_entity,
            arguments=lambda: [self._kind.name, list(parse_path(path)), parent and parent.id, doc, if_exists],
        )
        own = call.operation_id is not None and not self._session.in_transaction
        if own and options.get("parents") and parent is None:
            self._make_all_parents(path, options, call)  # before: that they are missing would be the operation's result
        rounds = 0
        while True:
            try:
                return cast(E, perform(self._session, request, call))
            except EntityNotFound:
                if not options.get("parents") or parent is not None:
                    raise
                rounds += 1
                if self._session.in_transaction and rounds > len(parse_path(path)):
                    raise  # what it read is of two instants: another round would find the same
                if not self._make_parents(path, options):
                    raise

    def _make_parents(self, path: Path, options: CreateOptions) -> bool:
        """Create the first missing schema above ``path``; False if what is missing is no schema."""
        names = parse_path(path)
        where = lookup(self._kind, names)
        (found,) = self._session.backend.resolve([where])
        depth = len(found.nodes) + 1
        if depth >= len(names) or where.families[depth - 1] != KINDS["schema"].family:
            return depth >= len(names)
        more = CreateOptions(
            if_exists="return",
            principal=options.get("principal"),
            deadline=options.get("deadline"),
            lease=options.get("lease"),
        )
        try:
            Manager[Entity](self._session, KINDS["schema"])._create(names[:depth], {}, more)  # noqa: SLF001  (our own)
        except OutcomeUnknown:
            # of the schema, which is all the same: the call's own operation was not sent yet
            own = call_from(options).operation_id or self._session.clock.operation_id()
            raise OutcomeUnknown(
                own,
                f"{format_path(names)} was not created: the answer to the creation of a schema above it was lost; "
                "call again",
            ) from None
        return True

    def _make_all_parents(self, path: Path, options: CreateOptions, call: Call) -> None:
        """Create all missing schemas above ``path``, unless the call was made before under its operation id."""
        for depth in range(len(parse_path(path))):
            (found,) = self._session.backend.resolve([lookup(self._kind, parse_path(path))])
            if len(found.nodes) >= len(parse_path(path)) - 1:
                return
            if (depth == 0 and not is_new(self._session.of_store(), call)) or not self._make_parents(path, options):
                return

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
        if not issubclass(type(rows), Iterable):
            raise InvalidArgument(f"rows are mappings with a name and the fields of create, not {shown(rows)}")
        check_if_exists(if_exists)
        known_keywords(options, BULK_OPTIONS)
        call = call_from(options)
        known: list[tuple[Node, ...]] = []

        def parents_of(view: View) -> tuple[Node, ...]:
            if not known or not view.guess():
                known[:] = [parent_nodes(view, self._kind, parent)]
            return known[0]

        def write(chunk: Chunk) -> int:
            def attempt(view: View) -> Proposal[int] | int:
                return create_chunk(view, chunk, self._kind, parents_of, if_exists)

            def what() -> str:
                return f"create {len(chunk)} of kind {self._kind.name}"

            request = Request[int](verb="create_many", what=what, attempt=attempt, replay=len, arguments=tuple)
            return perform(self._session, request, call)

        written = 0
        # while one chunk is written, the next one is made
        with ThreadPoolExecutor(1, "metastore-create-many") as writer:
            before: Future[int] | None = None
            for chunk in chunks(rows, self._wish):
                written += 0 if before is None else before.result()
                before = writer.submit(copy_context().run, write, chunk)
            return written + (0 if before is None else before.result())

    def _wish(self, row: Mapping[str, Any]) -> tuple[str, Wish, str]:
        if not isinstance(row, Mapping) or "name" not in row:
            raise InvalidArgument("each row is a mapping with a name and the fields of create")
        fields = dict(row)
        name, comment = clean_name(fields.pop("name")), fields.pop("comment", None)
        wish = Wish(self._kind, comment, fields.pop("properties", MappingProxyType({})), self._kind.take(fields))
        return name, wish, dump(wish.document(), (name,))

    # --- reading

    def load(self, target: Target, *, version: int | None = None) -> E:
        """Return the entity as it is now, or as it was at ``version``. Raises EntityNotFound."""
        record = find(View(self._session.backend, False), self._kind, target)
        origin = self._session.backend.origin
        if version is None:
            return cast(E, self._kind.entity(record, origin))
        positive_integer(version, "a version")
        for step in self._session.backend.history(record.chain[-1].id, version - 1, 1):
            entity = entity_at(step, origin=origin)
            if step.version == version and entity is not None:
                return cast(E, entity)
        path = format_path([n.name for n in record.chain])
        raise EntityNotFound(path, f"{path} has no version {version} in its history; see the manager's history()")

    def load_many(self, paths: Iterable[Path]) -> list[E | None]:
        """Return the entity at each path, or None, in one round trip."""
        lookups = [lookup(self._kind, parse_path(path)) for path in items(paths, "paths")]
        found = self._session.backend.resolve(lookups) if lookups else []
        return [self._mine(r.record) for r in found]

    def _mine(self, record: Record | None) -> E | None:
        """Return the entity, if it is one of this kind and not of another of its family."""
        if record is None or record.chain[-1].kind != self._kind.name:
            return None
        return cast(E, self._kind.entity(record, self._session.backend.origin))

    def exists(self, path: Path) -> bool:
        """Whether a live entity of this kind is at ``path``."""
        (found,) = self._session.backend.resolve([lookup(self._kind, parse_path(path))])
        return self._mine(found.record) is not None

    def list(
        self, parent: Target | None = None, *, page_size: int = 1000, unreadable: Unreadable | None = None
    ) -> Iterator[E]:
        """Yield the direct children of this kind, by name. Raises EntityNotFound for a missing parent.

        With ``unreadable``, damaged rows are left out, and it gets their errors; else what is asked of one raises.
        """
        return self._children(parent, LIVE, page_size, unreadable)

    def dropped(
        self, parent: Target | None = None, *, page_size: int = 1000, unreadable: Unreadable | None = None
    ) -> Iterator[E]:
        """Yield the children that were dropped and can be restored, by name, then oldest first. See ``list``."""
        return self._children(parent, DROPPED, page_size, unreadable)

    def _children(
        self, parent: Target | None, state: int, page_size: int, unreadable: Unreadable | None
    ) -> Iterator[E]:
        check_unreadable(unreadable)
        positive_integer(page_size, "a page size")
        backend, kind = self._session.backend, self._kind

        def read(above: Node, last: Child | None, guards: Any) -> tuple[RowPage[Child], int]:
            after = ("", 0) if last is None else (last.key, last.node.id)
            return backend.children(above.id, kind.name, kind.family, state, after, page_size, guards), page_size

        for nodes, child in pages(backend, kind, parent, read):
            entity = kind.entity(child.record(nodes, live=state == LIVE), backend.origin)
            if unreadable is None or kept(partial(_same, entity), unreadable) is not None:
                yield cast(E, entity)

    def names(self, parent: Target | None = None, *, page_size: int = 1000) -> Iterator[str]:
        """Yield the children's names, ordered by code point. Raises EntityNotFound for a missing parent."""
        positive_integer(page_size, "a page size")
        backend, kind = self._session.backend, self._kind

        def read(above: Node, last: tuple[str, str] | None, guards: Any) -> tuple[RowPage[tuple[str, str]], int]:
            after = "" if last is None else last[0]
            return backend.names(above.id, kind.name, kind.family, after, page_size, guards), page_size

        for _, (_, name) in pages(backend, kind, parent, read):
            yield name

    def history(self, target: Target, *, unreadable: Unreadable | None = None) -> Iterator[Version]:
        """Yield what happened to the entity, oldest first. An entity in hand may be a dropped one.

        A damaged row raises UnreadableRow; with ``unreadable`` it is left out, and that function gets the error.
        """
        check_unreadable(unreadable)
        backend = self._session.backend
        steps = steps_of(backend, self._with_history(target))
        found = (kept(partial(version_of, step, backend.origin), unreadable) for step in steps)
        return (version for version in found if version is not None)

    # --- changing

    @shows_options(CallOptions)
    def alter(
        self,
        target: Target,
        *changes: EntityChange,
        expected_version: int | None = None,
        **options: Unpack[CallOptions],
    ) -> E:
        """Apply ``changes``, merged with what others do meanwhile; return the entity.

        Nothing is written if the entity stays equal. Raises EntityNotFound; VersionConflict if
        ``expected_version`` or a change's own expectation fails; what the changes raise.
        """
        self._kind.check_changes(changes)
        call = call_of(options)
        actor = self._actor(call)

        def attempt(view: View) -> Proposal[Entity] | Entity:
            record = find(view, self._kind, target)
            moving.check_version(record, expected_version)
            names = tuple([n.name for n in record.chain])
            text = altered(record.doc, names, changes, self._kind.check_doc)
            return rewrite(self._kind, record, text, dump_changes(changes, names), actor)

        merge = None
        if expected_version is None and not self._session.in_transaction:
            held = isinstance(target, Entity)
            names = None if held else names_of(self._kind, target)
            merge = Merge(self._kind.name, names, target.id if isinstance(target, Entity) else None, changes)
        arguments = lambda: [encode(changes), expected_version]  # noqa: E731
        return self._run_for_entity(attempt, call, "alter", target, arguments, merge)

    @shows_options(CallOptions)
    def rename(
        self, target: Target, to: Path, *, expected_version: int | None = None, **options: Unpack[CallOptions]
    ) -> E:
        """Give the entity a new name, or with a full path a new place; return it.

        Raises EntityAlreadyExists if the name is taken, InvalidArgument for a move below itself.
        """
        call = call_of(options)
        parse_path(to)
        actor = self._actor(call)
        return self._run_for_entity(
            lambda view: moving.rename(view, self._kind, target, to, expected_version, actor),
            call,
            "rename",
            target,
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
        """Drop the entity; False: there was nothing to drop. Raises NotEmpty without ``cascade``.

        It can be restored until gc collects it.
        """
        call = call_of(options)
        actor = self._actor(call)
        return self._run(
            lambda view: moving.drop(view, self._kind, target, cascade, expected_version, actor),
            call,
            "drop",
            target,
            lambda _: True,
            lambda: [cascade, expected_version],
        )

    @shows_options(CallOptions)
    def restore(
        self, path: Path, *, id: int | None = None, to: Path | None = None, **options: Unpack[CallOptions]
    ) -> E:
        """Bring back what was dropped last at ``path``, or the one with ``id``, there or at ``to``.

        Raises EntityNotFound, or EntityAlreadyExists if the name is taken.
        """
        if id is not None:
            integer(id, "an id")
        call = call_of(options)
        actor = self._actor(call)
        return self._run_for_entity(
            lambda view: moving.restore(view, self._kind, path, id, to, actor),
            call,
            "restore",
            path,
            lambda: [id, None if to is None else list(parse_path(to))],
        )

    @shows_options(CallOptions)
    def purge(self, target: Target, **options: Unpack[CallOptions]) -> bool:
        """Remove an entity for good: a live, empty one, or by its Entity a dropped one.

        False: there was nothing. Its history goes with it; what the feed says of it stays for the
        retention.
        """
        call = call_of(options)
        actor = self._actor(call)
        entity_id = self._run(
            lambda view: moving.purge(view, self._kind, target, actor),
            call,
            "purge",
            target,
            lambda steps: steps[0].entity_id or 0,
            tuple,
        )
        if entity_id and not self._session.in_transaction:  # gc deletes it otherwise
            delete_tree(self._session.of_store().backend, entity_id)
        return bool(entity_id)

    # --- for all of them

    def _actor(self, call: Call) -> str | None:
        return self._session.principal if call.principal is None else call.principal

    def _run(
        self,
        attempt: Attempt[T],
        call: Call,
        verb: str,
        target: Target,
        replay: Callable[[Sequence[Step]], T],
        arguments: Callable[[], Any],
        merge: Merge | None = None,
    ) -> T:
        def what() -> str:
            return f"{verb} {self._kind.name} {target.path if isinstance(target, Entity) else target!r}"

        def all_arguments() -> Any:
            return [self._kind.name, shown_target(target), arguments()]

        if isinstance(target, Entity):
            committed(self._session.backend, target)  # before anything is announced, or purged, under its id
        request = Request(
            verb=verb,
            what=what,
            attempt=attempt,
            replay=replay,
            arguments=all_arguments,
            merge=merge,
            exclusive=verb != "alter",
        )
        return perform(self._session, request, call)

    def _run_for_entity(
        self,
        attempt: Attempt[Entity],
        call: Call,
        verb: str,
        target: Target,
        arguments: Callable[[], Any] = tuple,
        merge: Merge | None = None,
    ) -> E:
        return cast(E, self._run(attempt, call, verb, target, _entity, arguments, merge))


def _same(entity: Entity) -> Entity:
    return entity


def _entity(steps: Sequence[Step]) -> Entity:
    return cast(Entity, entity_at(steps[0]))
