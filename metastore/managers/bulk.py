"""Create many entities below one parent in chunks, one commit each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from metastore.arguments import shown
from metastore.errors import InvalidArgument, VersionConflict
from metastore.kinds.catalog import CATALOG
from metastore.kinds.kind import Kind, dump
from metastore.managers.attempts.chunk import NamedWish, chunks, create_chunk
from metastore.managers.attempts.create import IfExists, Wish, check_if_exists
from metastore.managers.pages.listing import parent_nodes
from metastore.managers.secrets.sealing import as_seen, fresh_seal, seal_of_catalog
from metastore.managers.target import Target
from metastore.names import clean_name
from metastore.operation.perform import perform
from metastore.operation.request import Attempt, Call, Proposal, Request, View
from metastore.operation.seals import Seal, Stale
from metastore.operation.session import ManagerSession
from metastore.port.records import Node


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
        for chunk in chunks(rows, writer.wish):
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

    def wish(self, row: Mapping[str, Any]) -> NamedWish:
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
        return NamedWish(name, wish, dump(doc, (name,)), new)

    def _sealed(self, properties: Any, seal: Seal) -> Any:
        if self.seal is not None:
            self.seal = seal  # the seal changes if the user does not see the catalog
        return seal.properties(properties)

    def write(self, chunk: list[NamedWish]) -> int:
        """Commit a chunk; return how many entities it wrote."""

        def attempt(view: View) -> Proposal[int] | int:
            return create_chunk(view, chunk, self.kind, self._parents, self.if_exists)

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
