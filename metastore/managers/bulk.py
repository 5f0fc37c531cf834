"""Create many entities below one parent in chunks, one commit each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from metastore.arguments import shown
from metastore.errors import EntityAlreadyExists, InvalidArgument, VersionConflict
from metastore.kinds.catalog import CATALOG
from metastore.kinds.kind import Kind, dump
from metastore.managers.attempts.create import IfExists, Wish, check_if_exists, new_entity, of_existing
from metastore.managers.pages.listing import parent_nodes
from metastore.managers.secrets.sealing import as_seen, fresh_seal, seal_of_catalog
from metastore.managers.target import Target, check_standing, root_or_last, standing
from metastore.names import clean_name, format_path
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.perform import perform
from metastore.operation.request import Attempt, Call, Proposal, Request, Results, View
from metastore.operation.seals import Seal, Stale
from metastore.operation.session import ManagerSession
from metastore.port.conditions import Expect, Read
from metastore.port.records import Lookup, Node
from metastore.port.writes import Insert, Update

_CHUNK = 1000
_CHUNK_BYTES = 4 << 20


class _NamedWish(NamedTuple):
    """An entity to create below the parent of its chunk."""

    name: str
    wish: Wish
    text: str
    """Its document."""
    id: int | None = None
    """Its id, if the document has secrets bound to the id; None: the database draws one."""


def create_many(
    session: ManagerSession,
    kind: Kind,
    parent: Target | None,
    rows: Iterable[Mapping[str, Any]],
    if_exists: IfExists,
    call: Call,
) -> int:
    """Create an entity of ``kind`` for each row; return how many were written."""
    if not issubclass(type(rows), Iterable):
        raise InvalidArgument(f"rows are mappings with a name and the fields of create, not {shown(rows)}")
    check_if_exists(if_exists)
    writer = _Writer(session, kind, parent, if_exists, call)
    written = 0
    # one chunk is written while the next one is prepared
    with ThreadPoolExecutor(1, "metastore-create-many") as thread:
        before: Future[int] | None = None
        for chunk in _chunks(rows, writer.wish):
            written += 0 if before is None else before.result()
            before = thread.submit(copy_context().run, writer.write, chunk)
        if before is None:
            writer.write_nothing()
        return written + (0 if before is None else before.result())


@dataclass
class _Writer:
    """The writer of chunks below one parent. It looks the parent up once; the commits check that it is still there."""

    session: ManagerSession
    kind: Kind
    parent: Target | None
    if_exists: IfExists
    call: Call
    nodes: tuple[Node, ...] | None = field(default=None, init=False)
    seal: Seal | None = field(default=None, init=False)
    """The seal that encrypts the rows; None: no row had properties yet."""

    def wish(self, row: Mapping[str, Any]) -> _NamedWish:
        """Return the name, the wish and the document of a row. Raises InvalidArgument."""
        if not isinstance(row, Mapping) or "name" not in row:
            raise InvalidArgument("each row is a mapping with a name and the fields of create")
        fields = dict(row)
        name, comment = clean_name(fields.pop("name")), fields.pop("comment", None)
        properties = fields.pop("properties", MappingProxyType({}))
        if properties:
            properties = as_seen(self.session, self._sealing(properties), partial(self._sealed, properties))
        wish = Wish(self.kind, comment, properties, self.kind.take(fields))
        new, doc = wish.new(wish.document())
        return _NamedWish(name, wish, dump(doc, (name,)), new)

    def _sealed(self, properties: Any, seal: Seal) -> Any:
        if self.seal is not None:
            self.seal = seal  # the seal changes if the user does not see the catalog
        return seal.properties(properties)

    def write(self, chunk: list[_NamedWish]) -> int:
        """Commit a chunk; return how many entities it wrote."""

        def attempt(view: View) -> Proposal[int] | int:
            return _create_chunk(view, chunk, self.kind, self._parents, self.if_exists)

        try:
            return self._perform(len(chunk), attempt if self.seal is None else self.seal.guarding(attempt))
        except Stale:
            message = "the catalog's declaration of secrets has changed meanwhile; run it again with if_exists='return'"
            raise VersionConflict(self.kind.name, None, None, message) from None

    def write_nothing(self) -> None:
        """Check the lease of a call without rows. Raises LeaseLost."""
        if self.call.lease is not None:
            self._perform("none", lambda _: 0)

    def _perform(self, count: object, attempt: Attempt[int]) -> int:
        request = Request[int](
            verb="create_many",
            what=lambda: f"create {count} of kind {self.kind.name}",
            attempt=attempt,
            replay=len,
            arguments=tuple,
        )
        return perform(self.session, request, self.call)

    def _sealing(self, properties: object) -> Seal:
        """Return the seal that encrypts a row. The settings are read once, for all rows."""
        if self.kind is CATALOG:
            return seal_of_catalog(self.session, properties)
        if self.seal is None:
            self.seal = fresh_seal(self.session, self.kind, self.parent)
        return self.seal

    def _parents(self, view: View) -> tuple[Node, ...]:
        if self.nodes is None or not view.guess():
            self.nodes = parent_nodes(view, self.kind, self.parent)
        return self.nodes


def _create_chunk(
    view: View,
    wishes: Sequence[_NamedWish],
    kind: Kind,
    parents_of: Callable[[View], tuple[Node, ...]],
    if_exists: IfExists,
) -> Proposal[int] | int:
    """Propose all of ``wishes`` below one parent; the result counts the entities that it wrote."""
    parents = parents_of(view)
    check_in_use(parents)
    parent = root_or_last(parents)
    upper = tuple(n.name for n in parents)
    inserts = [new_entity(kind, parent, (*upper, w.name), w.text, w.wish.folds(parent), w.id) for w in wishes]
    if if_exists != "return":
        wishes, inserts = _distinct(wishes, inserts, if_exists)
    if view.guessed or if_exists == "return":
        return Proposal(guards_of(parents), tuple(inserts), _count, skip_existing=if_exists == "return")
    lookups = [Lookup((kind.family,), (name,), parent) for name, *_ in wishes]
    guards = {guard.id: guard for guard in guards_of(parents)}
    writes: list[Insert | Update] = []
    equal_rows: list[Read] = []  # not written; the commit checks that these rows are still equal
    with standing(view, parents):
        for resolved, insert, (name, wish, *_) in zip(view.backend.resolve(lookups), inserts, wishes, strict=True):
            if resolved.record is None:
                if resolved.nodes:
                    raise EntityAlreadyExists(format_path((*upper, name)))
                writes.append(insert)
                continue
            there = resolved.record._replace(chain=(*parents, *resolved.record.chain))
            decided = of_existing(wish, wish.document(), there, (*upper, name), if_exists, None)
            if isinstance(decided, Proposal):
                # guard a container that is replaced, too: a freeze of the container then waits for this commit
                guards |= {guard.id: guard for guard in decided.guards}
                writes.extend(w for w in decided.writes if isinstance(w, Update))
            else:
                equal_rows.append(Expect(there.chain[-1].id, there.version))
    if not writes:
        check_standing(view, parents)
        return 0
    exclusive = any(guard.exclusive for guard in guards.values())
    return Proposal(tuple(guards.values()), tuple(writes), _count, exclusive=exclusive, reads=tuple(equal_rows))


def _distinct(
    wishes: Sequence[_NamedWish], inserts: list[Insert], if_exists: IfExists
) -> tuple[Sequence[_NamedWish], list[Insert]]:
    """Return the wishes with the last row of each name. Raises EntityAlreadyExists for a repeated name with "error"."""
    last = {insert.key: n for n, insert in enumerate(inserts)}
    for n, insert in enumerate(inserts):
        if if_exists == "error" and last[insert.key] != n:
            raise EntityAlreadyExists(insert.event.path_after or insert.name)
    return [wishes[n] for n in last.values()], [inserts[n] for n in last.values()]


def _count(results: Results) -> int:
    return sum(r is not None for r in results)


def _chunks(
    rows: Iterable[Mapping[str, Any]], wish: Callable[[Mapping[str, Any]], _NamedWish]
) -> Iterator[list[_NamedWish]]:
    """Yield the wishes in chunks that are bounded in number and in size."""
    chunk: list[_NamedWish] = []
    size = 0
    for row in rows:
        chunk.append(wish(row))
        size += len(chunk[-1].text)
        if len(chunk) == _CHUNK or size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
