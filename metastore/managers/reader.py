"""Read entities of one kind: by path or by a loaded entity, and as listings of a parent's children."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from metastore.arguments import items, positive_integer
from metastore.errors import EntityNotFound
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.managers.pages.listing import pages, parent_nodes
from metastore.managers.pages.page import Page, TokenScope
from metastore.managers.pages.sources import Key, Nodes, PageSource, clean_prefix, page_of
from metastore.managers.target import Target, absent, find, missing, names_of, unless_back
from metastore.names import Path, parse_path
from metastore.operation.guards import lookup
from metastore.operation.kept_result import entity_at
from metastore.operation.request import View, committed
from metastore.operation.session import Caches, Found, ManagerSession
from metastore.operation.timed import timing
from metastore.port.backend import Guards, Reads
from metastore.port.conditions import LIVE
from metastore.port.records import Child, Lookup, Node, Origin, Record, Resolved
from metastore.port.records import RowPage as Rows
from metastore.port.unreadable import Unreadable, check_unreadable, kept

E = TypeVar("E", bound=Entity)
NameRow = tuple[str, str]
"""A name's key and the name."""


class Reader(Generic[E]):
    """The reads of :class:`metastore.managers.manager.Manager`, whose methods call these."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        self._session = session
        self._kind = kind

    @property
    def _backend(self) -> Reads:
        return self._session.backend  # a transaction changes its session's backend when it begins and when it ends

    def kept_as(self, target: Target) -> object:
        """Return the cache's key for a target: a path's text as given, its names, or an entity's id and creation time.

        The time distinguishes entities with the same id: after a loss of commits, the database may give an id again.
        """
        if isinstance(target, Entity):
            origin, here = target.origin, self._backend.origin
            mine = origin is here or origin is None or origin.database == here.database
            return (target.id, target.record.created_at) if mine and target.kind == self._kind.name else None
        return target if isinstance(target, str) else parse_path(target)

    def load(self, target: Target, version: int | None) -> E:
        """Return the entity as it is now, or as it was at ``version``."""
        cache = self._session.cache if version is None else None
        if isinstance(target, Entity):
            entity = self._in_hand(target) if cache is None else self._in_hand_cached(cache, target)
        else:
            names = parse_path(target)
            entity = self._there(names) if cache is None else self._there_cached(cache, target, names)
        if version is None:
            return entity
        version = positive_integer(version, "a version")
        origin = self._backend.origin
        for step in self._backend.history(entity.id, version - 1, 1):
            past = entity_at(step, origin=origin)
            if step.version == version and past is not None:
                return cast(E, past)
        raise EntityNotFound(
            entity.path, f"{entity.path} has no version {version} in its history; see the manager's history()"
        )

    def _in_hand(self, target: Entity) -> E:
        origin = self._backend.origin
        record = find(View(self._backend, False), self._kind, target)
        return cast(E, self._kind.entity(record, origin))

    def _in_hand_cached(self, cache: Caches, target: Entity) -> E:
        names_of(self._kind, target)
        committed(self._backend, target)  # raises InvalidArgument for an entity of another database
        key = self._kind.name, (target.id, target.record.created_at)
        return cast(E, cache.read(key, (), lambda: self._in_hand(target)))

    def _there(self, names: tuple[str, ...]) -> E:
        """Return the entity at a path. Raises EntityNotFound, DropPending."""
        where, origin = lookup(self._kind, names), self._backend.origin
        resolved = self._session.resolve(where)
        entity = self._mine(resolved.record, origin)
        return self._not_there(where, resolved) if entity is None else entity

    def _not_there(self, where: Lookup, resolved: Resolved) -> E:
        """Raise the error for a path that led nowhere. If an entity has the path by now, return it."""
        if resolved.free:
            raise missing(where.names, resolved.nodes)
        error = partial(absent, self._backend, where, resolved.nodes)
        return unless_back(error, lambda: self._there(where.names))

    def _there_cached(self, cache: Caches, path: Path, names: tuple[str, ...]) -> E:
        found = self._cached(cache, path, names)
        # a load by path raises DropPending for an entity that is being dropped
        return cast(E, found) if isinstance(found, Entity) else self._there(names)

    def _at(self, names: tuple[str, ...]) -> Found:
        """Return the entity at a path. If it is missing, return the live nodes up to the first missing name."""
        origin = self._backend.origin
        resolved = self._session.resolve(lookup(self._kind, names))
        return self._mine(resolved.record, origin) or resolved.nodes

    def _cached(self, cache: Caches, path: Path, names: tuple[str, ...]) -> Found:
        return cache.read((self._kind.name, self.kept_as(path)), names, lambda: self._at(names))

    def load_many(self, paths: Iterable[Path]) -> list[E | None]:
        """Return the entity at each path, or None, in one round trip."""
        given = list(items(paths, "paths"))
        wanted = [parse_path(path) for path in given]
        lookups = [lookup(self._kind, names) for names in wanted]
        cache = self._session.cache
        if not lookups:
            return []
        origin = self._backend.origin
        if cache is None:
            return [self._mine(one.record, origin) for one in self._backend.resolve(lookups)]
        kept = cache.read_many(
            [((self._kind.name, self.kept_as(path)), names) for path, names in zip(given, wanted, strict=True)],
            lambda: [self._mine(one.record, origin) or one.nodes for one in self._backend.resolve(lookups)],
        )
        return [cast(E, one) if isinstance(one, Entity) else None for one in kept]

    def exists(self, path: Path) -> bool:
        """Whether a live entity of this kind is at ``path``."""
        names, cache = parse_path(path), self._session.cache
        return isinstance(self._at(names) if cache is None else self._cached(cache, path, names), Entity)

    def _mine(self, record: Record | None, origin: Origin) -> E | None:
        """Return the entity if it is of this kind; another kind of the family may have the path.

        ``origin`` was taken before the read, because another thread may note a restart before the answer is used.
        """
        if record is None or record.chain[-1].kind != self._kind.name:
            return None
        return cast(E, self._kind.entity(record, origin))

    def children(self, parent: Target | None, state: int, page_size: int, unreadable: Unreadable | None) -> Iterator[E]:
        """Yield the children in ``state``, ordered by name, then oldest first.

        Take their origin before the first read: the server may restart while the caller holds a page.
        """
        check_unreadable(unreadable)
        page_size = positive_integer(page_size, "a page size")
        backend, kind, origin = self._backend, self._kind, self._backend.origin
        ask = timing(self._session, "list" if state == LIVE else "dropped", backend.children)

        def read(above: Node, last: Child | None, guards: Guards) -> tuple[Rows[Child], int]:
            after = ("", 0) if last is None else (last.key, last.node.id)
            return ask(above.id, kind.name, kind.family, state, after, page_size, guards), page_size

        for nodes, child in pages(backend, kind, parent, read):
            entity = self._entity(state, origin, nodes, child)
            if unreadable is None or kept(partial(_same, entity), unreadable) is not None:
                yield entity

    def names(self, parent: Target | None, page_size: int) -> Iterator[str]:
        """Yield the children's names, ordered by code point."""
        page_size = positive_integer(page_size, "a page size")
        backend, kind = self._backend, self._kind
        ask = timing(self._session, "names", backend.names)

        def read(above: Node, last: NameRow | None, guards: Guards) -> tuple[Rows[NameRow], int]:
            after = "" if last is None else last[0]
            return ask(above.id, kind.name, kind.family, after, page_size, guards), page_size

        for _, (_, name) in pages(backend, kind, parent, read):
            yield name

    def children_page(
        self, parent: Target | None, state: int, size: int, token: str | None, prefix: str | None
    ) -> Page[E]:
        """Return one page of the children in ``state``."""
        backend, kind, origin = self._backend, self._kind, self._backend.origin

        def read(above: Node, after: Key, limit: int, guards: Guards) -> Rows[Child]:
            return backend.children(above.id, kind.name, kind.family, state, (after[0], after[1]), limit, guards)

        source = PageSource(
            listed=TokenScope("children" if state == LIVE else "dropped", kind.name, clean_prefix(prefix)),
            parent=lambda view: parent_nodes(view, kind, parent),
            read=read,
            key=lambda child: [child.key, child.node.id],
            item=partial(self._entity, state, origin),
            kept_as=(lambda: self._parent_as(parent)) if state == LIVE else None,
        )
        return page_of(self._session, source, size, token)

    def names_page(self, parent: Target | None, size: int, token: str | None, prefix: str | None) -> Page[str]:
        """Return one page of the children's names."""
        backend, kind = self._backend, self._kind

        def read(above: Node, after: Key, limit: int, guards: Guards) -> Rows[NameRow]:
            return backend.names(above.id, kind.name, kind.family, after[0], limit, guards)

        source = PageSource(
            listed=TokenScope("names", kind.name, clean_prefix(prefix)),
            parent=lambda view: parent_nodes(view, kind, parent),
            read=read,
            key=lambda row: [row[0], 0],
            item=lambda _, row: row[1],
            kept_as=lambda: self._parent_as(parent),
        )
        return page_of(self._session, source, size, token)

    def _parent_as(self, parent: Target | None) -> object:
        if isinstance(parent, Entity):
            return parent.kind, parent.id, parent.record.created_at, parent.origin and parent.origin.database
        return None if parent is None else parse_path(parent)

    def _entity(self, state: int, origin: Origin, nodes: Nodes, child: Child) -> E:
        return cast(E, self._kind.entity(child.record(nodes, live=state == LIVE), origin))


def _same(entity: Any) -> Any:
    return entity
